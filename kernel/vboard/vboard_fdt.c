// SPDX-License-Identifier: GPL-2.0-only
#include <linux/align.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <asm/byteorder.h>

#include "vboard_fdt.h"

#define FDT_MAGIC		0xd00dfeedu
#define FDT_VERSION		17
#define FDT_COMPATIBLE		16
#define FDT_BEGIN_NODE		1
#define FDT_END_NODE		2
#define FDT_PROP		3
#define FDT_END			9
#define FDT_HEADER		40
#define FDT_RESERVED		16	/* an empty list of reserved memory */

int vboard_fdt_init(struct vboard_fdt *fdt, u32 size)
{
	memset(fdt, 0, sizeof(*fdt));
	fdt->blob = kzalloc(size, GFP_KERNEL);
	if (!fdt->blob)
		return -ENOMEM;
	fdt->size = size;
	fdt->at = FDT_HEADER + FDT_RESERVED;
	return 0;
}

void vboard_fdt_fini(struct vboard_fdt *fdt)
{
	kfree(fdt->blob);
	fdt->blob = NULL;
}

static void put_bytes(struct vboard_fdt *fdt, const void *bytes, u32 len)
{
	u32 padded = ALIGN(len, 4);

	if (fdt->error || padded > fdt->size - fdt->at) {
		fdt->error = true;
		return;
	}
	memcpy(fdt->blob + fdt->at, bytes, len);
	fdt->at += padded;
}

static void put_cell(struct vboard_fdt *fdt, u32 value)
{
	__be32 cell = cpu_to_be32(value);

	put_bytes(fdt, &cell, sizeof(cell));
}

static u32 string_offset(struct vboard_fdt *fdt, const char *name)
{
	u32 len = strlen(name) + 1, at;

	for (at = 0; at < fdt->strings_len; at += strlen(fdt->strings + at) + 1)
		if (!strcmp(fdt->strings + at, name))
			return at;
	if (len > sizeof(fdt->strings) - fdt->strings_len) {
		fdt->error = true;
		return 0;
	}
	memcpy(fdt->strings + at, name, len);
	fdt->strings_len += len;
	return at;
}

void vboard_fdt_begin(struct vboard_fdt *fdt, const char *name)
{
	put_cell(fdt, FDT_BEGIN_NODE);
	put_bytes(fdt, name, strlen(name) + 1);
}

void vboard_fdt_end(struct vboard_fdt *fdt)
{
	put_cell(fdt, FDT_END_NODE);
}

void vboard_fdt_prop(struct vboard_fdt *fdt, const char *name, const void *value, u32 len)
{
	put_cell(fdt, FDT_PROP);
	put_cell(fdt, len);
	put_cell(fdt, string_offset(fdt, name));
	put_bytes(fdt, value, len);
}

void vboard_fdt_string(struct vboard_fdt *fdt, const char *name, const char *value)
{
	vboard_fdt_prop(fdt, name, value, strlen(value) + 1);
}

void vboard_fdt_cells(struct vboard_fdt *fdt, const char *name, const u32 *cells, unsigned int count)
{
	unsigned int i;

	put_cell(fdt, FDT_PROP);
	put_cell(fdt, count * sizeof(u32));
	put_cell(fdt, string_offset(fdt, name));
	for (i = 0; i < count; i++)
		put_cell(fdt, cells[i]);
}

void vboard_fdt_cell(struct vboard_fdt *fdt, const char *name, u32 cell)
{
	vboard_fdt_cells(fdt, name, &cell, 1);
}

const void *vboard_fdt_finish(struct vboard_fdt *fdt, u32 *size)
{
	u32 structure = FDT_HEADER + FDT_RESERVED, strings;
	__be32 *header = (__be32 *)fdt->blob;

	put_cell(fdt, FDT_END);
	strings = fdt->at;
	put_bytes(fdt, fdt->strings, fdt->strings_len);
	if (fdt->error)
		return NULL;
	header[0] = cpu_to_be32(FDT_MAGIC);
	header[1] = cpu_to_be32(fdt->at);
	header[2] = cpu_to_be32(structure);
	header[3] = cpu_to_be32(strings);
	header[4] = cpu_to_be32(FDT_HEADER);
	header[5] = cpu_to_be32(FDT_VERSION);
	header[6] = cpu_to_be32(FDT_COMPATIBLE);
	header[7] = 0;
	header[8] = cpu_to_be32(fdt->strings_len);
	header[9] = cpu_to_be32(strings - structure);
	*size = fdt->at;
	return fdt->blob;
}

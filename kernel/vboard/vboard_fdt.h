/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef VBOARD_FDT_H
#define VBOARD_FDT_H

#include <linux/types.h>

/**
 * struct vboard_fdt - writes a flattened device tree (Devicetree Specification 0.4, chapter 5) from front to back
 * @error: set when it didn't fit; the rest is then ignored, and finish gives NULL
 */
struct vboard_fdt {
	u8 *blob;
	u32 size;
	u32 at;		/* of the structure block's end, while it is being written */
	char strings[640];
	u32 strings_len;
	bool error;
};

int vboard_fdt_init(struct vboard_fdt *fdt, u32 size);
void vboard_fdt_begin(struct vboard_fdt *fdt, const char *name);
void vboard_fdt_end(struct vboard_fdt *fdt);
void vboard_fdt_prop(struct vboard_fdt *fdt, const char *name, const void *value, u32 len);
void vboard_fdt_string(struct vboard_fdt *fdt, const char *name, const char *value);
void vboard_fdt_cells(struct vboard_fdt *fdt, const char *name, const u32 *cells, unsigned int count);
void vboard_fdt_cell(struct vboard_fdt *fdt, const char *name, u32 cell);
/* The whole tree, *size bytes; NULL if it didn't fit. It stays the writer's. */
const void *vboard_fdt_finish(struct vboard_fdt *fdt, u32 *size);
void vboard_fdt_fini(struct vboard_fdt *fdt);

#endif /* VBOARD_FDT_H */

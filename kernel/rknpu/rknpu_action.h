/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_ACTION_H
#define RKNPU_ACTION_H

struct drm_device;
struct drm_file;

int rknpu_ioctl_action(struct drm_device *drm, void *data, struct drm_file *drm_file);

#endif /* RKNPU_ACTION_H */

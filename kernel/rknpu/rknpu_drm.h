/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RKNPU_DRM_H
#define RKNPU_DRM_H

struct drm_driver;

extern const struct drm_driver rknpu_drm_driver;

#endif /* RKNPU_DRM_H */

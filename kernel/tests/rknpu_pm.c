// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls what the PM core and the driver core call of npud_rknpu, when a test says so: "runtime_suspend" or "shutdown", written to the
 * parameter `call`, for all of its devices; the write fails as the first callback does that fails.
 */
#include <linux/device.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/pm.h>

static int pm_runtime_suspend_one(struct device *dev, void *data)
{
	return dev->driver->pm->runtime_suspend(dev);
}

static int pm_shutdown_one(struct device *dev, void *data)
{
	dev->bus->shutdown(dev);
	return 0;
}

static int pm_call(const char *what, const struct kernel_param *param)
{
	struct device_driver *driver = driver_find("npud-rknpu", &platform_bus_type);

	if (!driver)
		return -ENODEV;
	if (sysfs_streq(what, "runtime_suspend"))
		return driver_for_each_device(driver, NULL, NULL, pm_runtime_suspend_one);
	if (sysfs_streq(what, "shutdown"))
		return driver_for_each_device(driver, NULL, NULL, pm_shutdown_one);
	return -EINVAL;
}

static const struct kernel_param_ops pm_call_ops = { .set = pm_call };

module_param_cb(call, &pm_call_ops, NULL, 0200);

static int __init pm_init(void)
{
	return 0;
}

static void __exit pm_exit(void)
{
}

module_init(pm_init);
module_exit(pm_exit);

MODULE_DESCRIPTION("Calls npud_rknpu's callbacks for its tests");
MODULE_LICENSE("GPL");

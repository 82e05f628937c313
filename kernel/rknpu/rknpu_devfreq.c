// SPDX-License-Identifier: GPL-2.0-only
/*
 * The clock follows the load.
 * There is one for all cores, so there is one devfreq,
 * on the first node, and its load is that of the busiest core.
 * The OPP core sets clock and voltage; where the table has voltages for two supplies (cores and their memories)
 * they are set here, memories first on the way up and last on the way down, so that they are never lower than
 * the cores'.
 *
 * The rate is set by firmware, which hangs if no core has power then,
 * and a core that gets its power at a high rate may lock up (gregordinary/rockchip-npu-notes, perf/clock.md).
 * So it changes only between the first node's resume and the last one's suspend,
 * whoever asks, and is the lowest outside of that.
 * Not for each core: that costs more than it saves (same source).
 */
#include <linux/clk.h>
#include <linux/devfreq.h>
#include <linux/nvmem-consumer.h>
#include <linux/of.h>
#include <linux/pm_opp.h>
#include <linux/pm_qos.h>
#include <linux/property.h>
#include <linux/regulator/consumer.h>
#include <linux/slab.h>

#include "rknpu_core.h"
#include "rknpu_devfreq.h"
#include "rknpu_device.h"
#include "rknpu_file.h"
#include "rknpu_power.h"

#define POLL_MS		50
#define MAX_SUPPLIES	2

/*
 * struct rknpu_devfreq - what scales, if anything does
 * @node: whose clock and table it is
 * @config: the OPP core's token for our configuration
 * @nr_supplies: how many voltages the table has
 * @supplies_on: they are enabled for the OPP core, which disables them in the end
 * @at_ns, @busy_ns: the last sample; under devfreq's own lock
 * @rate_lock: the next two, and all changes of the rate; within devfreq's own lock
 * @powered: some node has power
 * @hz: what devfreq wants, for when one has
 */
struct rknpu_devfreq {
	struct rknpu_device *rdev;
	struct rknpu_node *node;
	struct devfreq *devfreq;
	struct devfreq_dev_profile profile;
	int config;
	unsigned int nr_supplies;
	bool supplies_on;
	struct mutex rate_lock;		/* the next two, and the rate */
	bool powered;
	unsigned long hz;
	u64 at_ns;
	u64 busy_ns[RKNPU_MAX_CORES];
#if IS_ENABLED(CONFIG_DEVFREQ_GOV_SIMPLE_ONDEMAND)
	struct devfreq_simple_ondemand_data governor;
#endif
};

/* Limits of PM QoS and of sysfs come here without power, too. */
static int rknpu_devfreq_target(struct device *dev, unsigned long *hz, u32 flags)
{
	struct rknpu_node *node = dev_get_drvdata(dev);
	struct rknpu_devfreq *df = node->rdev->devfreq;
	struct dev_pm_opp *opp = devfreq_recommended_opp(dev, hz, flags);
	int ret = 0;

	if (IS_ERR(opp))
		return PTR_ERR(opp);
	dev_pm_opp_put(opp);
	mutex_lock(&df->rate_lock);
	if (df->powered)
		ret = dev_pm_opp_set_rate(dev, *hz);
	if (!ret)
		df->hz = *hz;
	mutex_unlock(&df->rate_lock);
	return ret;
}

/* The last node is about to lose its power, or lets go of the table. */
static void park(struct rknpu_devfreq *df)
{
	unsigned long lowest = 0;
	struct dev_pm_opp *opp = dev_pm_opp_find_freq_ceil(df->node->dev, &lowest);
	int ret = PTR_ERR_OR_ZERO(opp);

	if (!ret)
		dev_pm_opp_put(opp);
	mutex_lock(&df->rate_lock);
	if (df->powered && !ret)
		ret = dev_pm_opp_set_rate(df->node->dev, lowest);
	df->powered = false;
	mutex_unlock(&df->rate_lock);
	if (ret)
		dev_warn(df->node->dev, "the clock stays as it is without power: %d\n", ret);
}

static int rknpu_devfreq_get_cur_freq(struct device *dev, unsigned long *hz)
{
	struct rknpu_node *node = dev_get_drvdata(dev);

	*hz = clk_get_rate(rknpu_node_clock(node)->clk);
	return 0;
}

/* Of the time since the last call. */
static int rknpu_devfreq_get_dev_status(struct device *dev, struct devfreq_dev_status *status)
{
	struct rknpu_node *node = dev_get_drvdata(dev);
	struct rknpu_devfreq *df = node->rdev->devfreq;
	u64 now, busy[RKNPU_MAX_CORES], most = 0;
	unsigned int i;

	rknpu_cores_busy_ns(df->rdev, &now, busy);
	for (i = 0; i < df->rdev->nr_cores; i++) {
		if (busy[i] > df->busy_ns[i])
			most = max(most, busy[i] - df->busy_ns[i]);
		df->busy_ns[i] = busy[i];
	}
	status->total_time = now - df->at_ns;
	status->busy_time = min_t(u64, most, status->total_time);
	df->at_ns = now;
	return rknpu_devfreq_get_cur_freq(dev, &status->current_frequency);
}

/* Memories (the second) never below cores. The OPP core has the clock low while this runs. */
static int rknpu_devfreq_set_voltages(struct device *dev, struct dev_pm_opp *from, struct dev_pm_opp *to, struct regulator **supplies,
				      unsigned int count)
{
	struct rknpu_node *node = dev_get_drvdata(dev);
	struct rknpu_devfreq *df = node->rdev->devfreq;
	struct dev_pm_opp_supply want[MAX_SUPPLIES], have[MAX_SUPPLIES];
	unsigned int i, n;
	bool up;
	int ret;

	ret = dev_pm_opp_get_supplies(to, want);
	ret = ret ?: dev_pm_opp_get_supplies(from, have);
	if (ret)
		return ret;
	up = want[0].u_volt >= have[0].u_volt;
	for (n = 0; n < count; n++) {
		i = up ? count - 1 - n : n;
		ret = regulator_set_voltage_triplet(supplies[i], want[i].u_volt_min, want[i].u_volt, want[i].u_volt_max);
		if (ret) {
			dev_err_ratelimited(dev, "supply %u: %lu uV can't be set: %d\n", i, want[i].u_volt, ret);
			return ret;
		}
	}
	if (df->supplies_on)
		return 0;
	for (i = 0; i < count; i++) {
		ret = regulator_enable(supplies[i]);
		if (ret) {
			while (i--)
				regulator_disable(supplies[i]);
			return ret;
		}
	}
	df->supplies_on = true;
	return 0;
}

/* How many supplies each OPP has voltages for: one number a supply, or three. */
static int rknpu_devfreq_count_supplies(struct device *dev)
{
	struct device_node *table = of_parse_phandle(dev->of_node, "operating-points-v2", 0);
	struct device_node *opp = of_get_next_available_child(table, NULL);
	int cells = of_property_count_u32_elems(opp, "opp-microvolt");

	of_node_put(opp);
	of_node_put(table);
	if (cells <= 0)
		return 0;
	if (cells == 1 || cells == 3)
		return 1;
	return cells == 2 || cells == 6 ? 2 : -EINVAL;
}

/* Of the RK3588: the fuse that says RK3588M or RK3588J, as the vendor's rockchip-cpufreq.c reads it. */
static int part_bin(struct device_node *table)
{
	struct nvmem_cell *cell = of_nvmem_cell_get(table, "specification_serial_number");
	int bin = 0;
	size_t len;
	u8 *serial;

	if (IS_ERR(cell))
		return PTR_ERR(cell) == -EPROBE_DEFER ? -EPROBE_DEFER : 0;
	serial = nvmem_cell_read(cell, &len);
	nvmem_cell_put(cell);
	if (IS_ERR(serial))
		return PTR_ERR(serial) == -EPROBE_DEFER ? -EPROBE_DEFER : 0;
	if (len && *serial == 0xd)
		bin = 1;
	else if (len && *serial == 0xa)
		bin = 2;
	kfree(serial);
	return bin;
}

/*
 * Which OPPs are for this part.
 * The vendor's tables give each a mask of bins, and one of grades of silicon;
 * unless told which ones we are the OPP core leaves all of them out.
 * Nobody here measures the grade: what any silicon can do, the worst included, is right.
 */
static int part_versions(struct device *dev, u32 *versions)
{
	struct device_node *table = of_parse_phandle(dev->of_node, "operating-points-v2", 0);
	struct device_node *opp = of_get_next_available_child(table, NULL);
	int cells = of_property_count_u32_elems(opp, "opp-supported-hw");
	int bin = part_bin(table);

	of_node_put(opp);
	of_node_put(table);
	if (cells <= 0)
		return 0;
	if (bin < 0)
		return bin;
	versions[0] = BIT(bin);
	versions[1] = BIT(0);
	return cells == 1 ? 1 : 2;
}

static int rknpu_devfreq_configure(struct rknpu_devfreq *df)
{
	const char * const clocks[] = { rknpu_node_clock(df->node)->id, NULL };
	const char *names[MAX_SUPPLIES + 1] = {};
	struct dev_pm_opp_config config = { .clk_names = clocks };
	struct device *dev = df->node->dev;
	int i, ret = rknpu_devfreq_count_supplies(dev);
	u32 versions[2];

	if (ret < 0) {
		dev_warn(dev, "the table of OPPs has voltages for more supplies than the NPU has\n");
		return ret;
	}
	df->nr_supplies = ret;
	for (i = 0; i < df->nr_supplies; i++) {
		if (!df->node->supplies[i]) {
			dev_warn(dev, "the table of OPPs has voltages for %u supplies, the node has only %d\n", df->nr_supplies, i);
			return -ENODEV;
		}
		names[i] = df->node->supply_names[i];
	}
	if (df->nr_supplies)
		config.regulator_names = names;
	if (df->nr_supplies > 1)
		config.config_regulators = rknpu_devfreq_set_voltages;
	ret = part_versions(dev, versions);
	if (ret < 0)
		return ret;
	if (ret)
		config.supported_hw = versions;
	config.supported_hw_count = ret;
	df->config = dev_pm_opp_set_config(dev, &config);
	return min(df->config, 0);
}

static int rknpu_devfreq_add(struct rknpu_devfreq *df)
{
	struct device *dev = df->node->dev;
	unsigned long hz;
	void *data = NULL;
	int ret;

	ret = rknpu_devfreq_configure(df);
	if (ret)
		return ret;
	ret = dev_pm_opp_of_add_table(dev);
	if (ret)
		goto err_config;

	/* From here on we may be asked. */
	df->rdev->devfreq = df;
	rknpu_devfreq_get_cur_freq(dev, &hz);
	ret = rknpu_devfreq_target(dev, &hz, 0);
	if (ret)
		goto err_table;
	df->profile = (struct devfreq_dev_profile) {
		.initial_freq = hz,
		.polling_ms = POLL_MS,
		.timer = DEVFREQ_TIMER_DELAYED,
		.target = rknpu_devfreq_target,
		.get_dev_status = rknpu_devfreq_get_dev_status,
		.get_cur_freq = rknpu_devfreq_get_cur_freq,
	};
	rknpu_cores_busy_ns(df->rdev, &df->at_ns, df->busy_ns);
#if IS_ENABLED(CONFIG_DEVFREQ_GOV_SIMPLE_ONDEMAND)
	/* Clients that wait for each job before the next leave gaps however slow the clock is. */
	df->governor.upthreshold = 45;
	df->governor.downdifferential = 5;
	data = &df->governor;
#endif
	df->devfreq = devfreq_add_device(dev, &df->profile, "simple_ondemand", data);
	if (!IS_ERR(df->devfreq))
		return 0;
	ret = PTR_ERR(df->devfreq);
err_table:
	df->rdev->devfreq = NULL;
	dev_pm_opp_of_remove_table(dev);
err_config:
	dev_pm_opp_clear_config(df->config);
	return ret;
}

static void rknpu_devfreq_bring_back(struct rknpu_devfreq *df)
{
	int ret;

	mutex_lock(&df->rate_lock);
	df->powered = true;
	ret = dev_pm_opp_set_rate(df->node->dev, df->hz);
	mutex_unlock(&df->rate_lock);
	if (ret)
		dev_warn_ratelimited(df->node->dev, "the clock can't be set to %lu Hz: %d\n", df->hz, ret);
	/* The time without power says nothing. */
	mutex_lock(&df->devfreq->lock);
	rknpu_cores_busy_ns(df->rdev, &df->at_ns, df->busy_ns);
	mutex_unlock(&df->devfreq->lock);
	devfreq_resume_device(df->devfreq);
}

int rknpu_devfreq_init(struct rknpu_device *rdev)
{
	struct rknpu_node *node = rdev->nodes[0];
	struct device *dev = node->dev;
	struct rknpu_devfreq *df;
	int ret;

	if (!dev->of_node || !device_property_present(dev, "operating-points-v2"))
		return 0;
	if (!rknpu_node_clock(node)) {
		dev_warn(dev, "a table of OPPs, but no clock npu, clk_npu, scmi_clk or clk\n");
		return 0;
	}
	df = kzalloc(sizeof(*df), GFP_KERNEL);
	if (!df)
		return -ENOMEM;
	df->rdev = rdev;
	df->node = node;
	df->powered = true;
	mutex_init(&df->rate_lock);
	ret = rknpu_power_get(&rdev->cores[0]);
	if (ret) {
		kfree(df);
		return ret;
	}
	mutex_lock(&rdev->devfreq_lock);
	ret = rknpu_devfreq_add(df);
	mutex_unlock(&rdev->devfreq_lock);
	rknpu_power_put(&rdev->cores[0]);
	if (!ret)
		return 0;
	kfree(df);
	if (ret == -EPROBE_DEFER)
		return ret;
	dev_warn(dev, "the clock doesn't follow the load: %d\n", ret);
	return 0;
}

void rknpu_devfreq_fini(struct rknpu_device *rdev)
{
	struct rknpu_devfreq *df;

	mutex_lock(&rdev->devfreq_lock);
	df = rdev->devfreq;
	if (df) {
		devfreq_remove_device(df->devfreq);
		park(df);
		rdev->devfreq = NULL;
		dev_pm_opp_of_remove_table(df->node->dev);
		dev_pm_opp_clear_config(df->config);
		kfree(df);
	}
	mutex_unlock(&rdev->devfreq_lock);
}

void rknpu_devfreq_resume(struct rknpu_device *rdev)
{
	mutex_lock(&rdev->devfreq_lock);
	if (!rdev->nodes_on++ && rdev->devfreq)
		rknpu_devfreq_bring_back(rdev->devfreq);
	mutex_unlock(&rdev->devfreq_lock);
}

void rknpu_devfreq_suspend(struct rknpu_device *rdev)
{
	mutex_lock(&rdev->devfreq_lock);
	if (!--rdev->nodes_on && rdev->devfreq) {
		devfreq_suspend_device(rdev->devfreq->devfreq);
		park(rdev->devfreq);
	}
	mutex_unlock(&rdev->devfreq_lock);
}

int rknpu_devfreq_set_floor(struct rknpu_file *file, u32 hz)
{
	struct rknpu_device *rdev = file->rdev;
	struct rknpu_devfreq *df;
	unsigned long ceil = hz;
	struct dev_pm_opp *opp;
	int ret;

	lockdep_assert_held(&file->lock);
	mutex_lock(&rdev->devfreq_lock);
	df = rdev->devfreq;
	if (!df) {
		ret = -EOPNOTSUPP;
		goto out;
	}
	ret = -EACCES;
	if (!capable(CAP_SYS_NICE))
		goto out;
	opp = dev_pm_opp_find_freq_ceil(df->node->dev, &ceil);
	if (IS_ERR(opp)) {
		ret = -EINVAL;
		goto out;
	}
	dev_pm_opp_put(opp);
	if (dev_pm_qos_request_active(&file->floor))
		ret = dev_pm_qos_update_request(&file->floor, hz / 1000);
	else
		ret = dev_pm_qos_add_request(df->node->dev, &file->floor, DEV_PM_QOS_MIN_FREQUENCY, hz / 1000);
	ret = min(ret, 0);
out:
	mutex_unlock(&rdev->devfreq_lock);
	return ret;
}

void rknpu_devfreq_drop_floor(struct rknpu_file *file)
{
	lockdep_assert_held(&file->lock);
	if (dev_pm_qos_request_active(&file->floor))
		dev_pm_qos_remove_request(&file->floor);
}

// SPDX-License-Identifier: GPL-2.0-only
#include <linux/clk-provider.h>
#include <linux/of.h>
#include <linux/pm_domain.h>
#include <linux/regulator/driver.h>
#include <linux/regulator/machine.h>
#include <linux/reset-controller.h>
#include <linux/slab.h>

#include "vboard.h"
#include "vboard_soc.h"

static const struct vboard_opp opps[] = VBOARD_OPPS;

#define LOWEST_UV	675000
#define STEP_UV		6250
#define STEPS		57	/* to 1.025 V */
#define CORES_MASK	GENMASK(VBOARD_CORES - 1, 0)

struct vboard_domain {
	struct generic_pm_domain genpd;
	struct vboard_soc *soc;
	u32 cores;
};

struct vboard_supply {
	struct vboard_soc *soc;
	struct regulator_desc desc;
	struct regulator_init_data init;
	struct regulator_dev *rdev;
	int uv;
	bool on;
};

struct vboard_soc {
	struct vboard *board;
	struct device_node *control;
	struct reset_controller_dev resets;
	struct clk_hw clock;
	unsigned long hz;
	struct vboard_supply supplies[2];	/* cores, memories */
	struct vboard_domain domains[VBOARD_PD_COUNT];
	struct generic_pm_domain *list[VBOARD_PD_COUNT];
	struct genpd_onecell_data onecell;
};

/* --- reset lines ---------------------------------------------------------------------------------------------------------------- */

static struct vboard *board_of(struct reset_controller_dev *resets)
{
	return container_of(resets, struct vboard_soc, resets)->board;
}

static int reset_assert(struct reset_controller_dev *resets, unsigned long id)
{
	vboard_change(board_of(resets), VBOARD_RESET, BIT(id), true);
	return 0;
}

static int reset_deassert(struct reset_controller_dev *resets, unsigned long id)
{
	vboard_change(board_of(resets), VBOARD_RESET, BIT(id), false);
	return 0;
}

static int reset_status(struct reset_controller_dev *resets, unsigned long id)
{
	return !!(vboard_read(board_of(resets), VBOARD_RESET) & BIT(id));
}

static const struct reset_control_ops reset_ops = {
	.assert = reset_assert,
	.deassert = reset_deassert,
	.status = reset_status,
};

/* --- the clock ------------------------------------------------------------------------------------------------------------------ */

/* What the cores' voltage is enough for. */
static void check_voltage(struct vboard_soc *soc, const char *when)
{
	const struct vboard_supply *cores = &soc->supplies[0], *memories = &soc->supplies[1];
	unsigned int i = 0;

	while (i < ARRAY_SIZE(opps) - 1 && opps[i].hz < soc->hz)
		i++;
	if (!cores->on)
		dev_WARN(&soc->board->pdev->dev, "driver fault: %s, %lu Hz without a supply\n", when, soc->hz);
	if (cores->uv < opps[i].uv)
		dev_WARN(&soc->board->pdev->dev, "driver fault: %s, %lu Hz at %d uV, which needs %d\n", when, soc->hz, cores->uv, opps[i].uv);
	if (memories->on && memories->uv < cores->uv)
		dev_WARN(&soc->board->pdev->dev, "driver fault: %s, memories at %d uV, cores at %d\n", when, memories->uv, cores->uv);
}

static unsigned long clock_recalc_rate(struct clk_hw *hw, unsigned long parent)
{
	return container_of(hw, struct vboard_soc, clock)->hz;
}

/* Any rate will do. */
static int clock_determine_rate(struct clk_hw *hw, struct clk_rate_request *request)
{
	return 0;
}

static int clock_set_rate(struct clk_hw *hw, unsigned long hz, unsigned long parent)
{
	struct vboard_soc *soc = container_of(hw, struct vboard_soc, clock);

	soc->hz = hz;
	vboard_write(soc->board, VBOARD_CLOCK_KHZ, hz / 1000);
	check_voltage(soc, "clock set");
	return 0;
}

static const struct clk_ops clock_ops = {
	.recalc_rate = clock_recalc_rate,
	.determine_rate = clock_determine_rate,
	.set_rate = clock_set_rate,
};

static int clock_create(struct vboard_soc *soc)
{
	static const struct clk_init_data init = { .name = "vboard-npu", .ops = &clock_ops };
	int ret;

	soc->hz = opps[0].hz;
	vboard_write(soc->board, VBOARD_CLOCK_KHZ, soc->hz / 1000);
	soc->clock.init = &init;
	ret = clk_hw_register(NULL, &soc->clock);
	if (ret)
		return ret;
	ret = of_clk_add_hw_provider(soc->control, of_clk_hw_simple_get, &soc->clock);
	if (ret)
		clk_hw_unregister(&soc->clock);
	return ret;
}

static void clock_destroy(struct vboard_soc *soc)
{
	of_clk_del_provider(soc->control);
	clk_hw_unregister(&soc->clock);
}

/* --- supplies -------------------------------------------------------------------------------------------------------------------- */

static int supply_enable(struct regulator_dev *rdev)
{
	struct vboard_supply *supply = rdev_get_drvdata(rdev);

	supply->on = true;
	return 0;
}

static int supply_disable(struct regulator_dev *rdev)
{
	struct vboard_supply *supply = rdev_get_drvdata(rdev);

	if (vboard_read(supply->soc->board, VBOARD_POWER))
		dev_WARN(&supply->soc->board->pdev->dev, "driver fault: supply %s goes while a power domain is on\n", supply->desc.name);
	supply->on = false;
	return 0;
}

static int supply_is_enabled(struct regulator_dev *rdev)
{
	struct vboard_supply *supply = rdev_get_drvdata(rdev);

	return supply->on;
}

static int supply_set(struct regulator_dev *rdev, unsigned int selector)
{
	struct vboard_supply *supply = rdev_get_drvdata(rdev);

	supply->uv = LOWEST_UV + STEP_UV * selector;
	if (supply->on)
		check_voltage(supply->soc, "voltage set");
	return 0;
}

static int supply_get(struct regulator_dev *rdev)
{
	struct vboard_supply *supply = rdev_get_drvdata(rdev);

	return (supply->uv - LOWEST_UV) / STEP_UV;
}

static const struct regulator_ops supply_ops = {
	.enable = supply_enable,
	.disable = supply_disable,
	.is_enabled = supply_is_enabled,
	.list_voltage = regulator_list_voltage_linear,
	.map_voltage = regulator_map_voltage_linear,
	.set_voltage_sel = supply_set,
	.get_voltage_sel = supply_get,
};

static int supply_create(struct vboard_soc *soc, unsigned int index, const char *name)
{
	struct vboard_supply *supply = &soc->supplies[index];
	struct regulator_config config = {
		.dev = &soc->board->pdev->dev,
		.init_data = &supply->init,
		.driver_data = supply,
	};

	supply->soc = soc;
	supply->uv = opps[0].uv;
	supply->desc = (struct regulator_desc) {
		.name = name, .type = REGULATOR_VOLTAGE, .owner = THIS_MODULE, .ops = &supply_ops, .min_uV = LOWEST_UV, .uV_step = STEP_UV,
		.n_voltages = STEPS,
	};
	supply->init.constraints = (struct regulation_constraints) {
		.name = name, .min_uV = LOWEST_UV, .max_uV = LOWEST_UV + STEP_UV * (STEPS - 1),
		.valid_ops_mask = REGULATOR_CHANGE_VOLTAGE | REGULATOR_CHANGE_STATUS,
	};
	config.of_node = of_get_child_by_name(soc->control, name);
	if (!config.of_node)
		return -ENODEV;
	supply->rdev = regulator_register(config.dev, &supply->desc, &config);
	of_node_put(config.of_node);
	return PTR_ERR_OR_ZERO(supply->rdev);
}

static void supply_destroy(struct vboard_supply *supply)
{
	regulator_unregister(supply->rdev);
}

/* --- power domains ---------------------------------------------------------------------------------------------------------------- */

static int domain_power(struct generic_pm_domain *genpd, bool on)
{
	struct vboard_domain *domain = container_of(genpd, struct vboard_domain, genpd);
	struct vboard *board = domain->soc->board;

	if (!domain->cores)
		return 0;
	if (on)
		vboard_change(board, VBOARD_POWER, domain->cores, true);
	vboard_change(board, VBOARD_CLOCK, domain->cores, on);
	if (!on)
		vboard_change(board, VBOARD_POWER, domain->cores, false);
	return 0;
}

static int domain_power_on(struct generic_pm_domain *genpd)
{
	return domain_power(genpd, true);
}

static int domain_power_off(struct generic_pm_domain *genpd)
{
	return domain_power(genpd, false);
}

static int domains_create(struct vboard_soc *soc)
{
	static const char * const names[VBOARD_PD_COUNT] = { "vboard-npu0", "vboard-npu1", "vboard-npu2", "vboard-npu" };
	unsigned int i;
	int ret;

	for (i = 0; i < VBOARD_PD_COUNT; i++) {
		struct vboard_domain *domain = &soc->domains[i];

		domain->soc = soc;
		domain->cores = i < VBOARD_CORES ? BIT(i) : 0;
		domain->genpd.name = names[i];
		domain->genpd.power_on = domain_power_on;
		domain->genpd.power_off = domain_power_off;
		domain_power(&domain->genpd, false);
		ret = pm_genpd_init(&domain->genpd, NULL, true);
		if (ret)
			goto err_domains;
		soc->list[i] = &domain->genpd;
	}
	/* What needs all cores keeps them all on. */
	for (i = 0; i < VBOARD_CORES; i++) {
		ret = pm_genpd_add_subdomain(&soc->domains[i].genpd, &soc->domains[VBOARD_PD_ALL].genpd);
		if (ret)
			goto err_subdomains;
	}
	soc->onecell.domains = soc->list;
	soc->onecell.num_domains = VBOARD_PD_COUNT;
	ret = of_genpd_add_provider_onecell(soc->control, &soc->onecell);
	if (!ret)
		return 0;
err_subdomains:
	while (i--)
		pm_genpd_remove_subdomain(&soc->domains[i].genpd, &soc->domains[VBOARD_PD_ALL].genpd);
	i = VBOARD_PD_COUNT;
err_domains:
	while (i--)
		pm_genpd_remove(&soc->domains[i].genpd);
	return ret;
}

static void domains_destroy(struct vboard_soc *soc)
{
	unsigned int i;

	of_genpd_del_provider(soc->control);
	for (i = 0; i < VBOARD_CORES; i++)
		pm_genpd_remove_subdomain(&soc->domains[i].genpd, &soc->domains[VBOARD_PD_ALL].genpd);
	for (i = VBOARD_PD_COUNT; i--;)
		if (pm_genpd_remove(&soc->domains[i].genpd))
			dev_err(&soc->board->pdev->dev, "power domain %u is still in use\n", i);
	/* As they were found. */
	vboard_change(soc->board, VBOARD_POWER, CORES_MASK, true);
	vboard_change(soc->board, VBOARD_CLOCK, CORES_MASK, true);
}

/* ------------------------------------------------------------------------------------------------------------------------------ */

struct vboard_soc *vboard_soc_create(struct vboard *board, struct device_node *control)
{
	struct vboard_soc *soc = kzalloc(sizeof(*soc), GFP_KERNEL);
	int ret;

	if (!soc)
		return ERR_PTR(-ENOMEM);
	soc->board = board;
	soc->control = of_node_get(control);
	soc->resets = (struct reset_controller_dev) {
		.owner = THIS_MODULE, .ops = &reset_ops, .of_node = control, .of_reset_n_cells = 1, .nr_resets = 16,
	};
	ret = reset_controller_register(&soc->resets);
	if (ret)
		goto err_free;
	ret = supply_create(soc, 0, VBOARD_SUPPLY_NPU);
	if (ret)
		goto err_resets;
	ret = supply_create(soc, 1, VBOARD_SUPPLY_MEM);
	if (ret)
		goto err_supply;
	ret = clock_create(soc);
	if (ret)
		goto err_supplies;
	ret = domains_create(soc);
	if (!ret)
		return soc;
	clock_destroy(soc);
err_supplies:
	supply_destroy(&soc->supplies[1]);
err_supply:
	supply_destroy(&soc->supplies[0]);
err_resets:
	reset_controller_unregister(&soc->resets);
err_free:
	of_node_put(soc->control);
	kfree(soc);
	return ERR_PTR(ret);
}

void vboard_soc_destroy(struct vboard_soc *soc)
{
	domains_destroy(soc);
	clock_destroy(soc);
	supply_destroy(&soc->supplies[1]);
	supply_destroy(&soc->supplies[0]);
	reset_controller_unregister(&soc->resets);
	of_node_put(soc->control);
	kfree(soc);
}

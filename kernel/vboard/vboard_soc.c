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

struct vboard_clock {
	struct clk_hw hw;
	struct vboard_soc *soc;
	bool on;
};

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
	struct vboard_clock clocks[VBOARD_CLK_COUNT];
	struct clk_hw_onecell_data *clock_list;
	unsigned long hz;			/* of VBOARD_CLK_NPU */
	bool domain_supply;
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

/* --- clocks --------------------------------------------------------------------------------------------------------------------- */

static __printf(2, 3) void vboard_soc_fault(struct vboard_soc *soc, const char *format, ...)
{
	struct va_format text = { .fmt = format };
	va_list args;

	va_start(args, format);
	text.va = &args;
	dev_WARN(&soc->board->pdev->dev, "driver fault: %pV\n", &text);
	va_end(args);
}

static bool cores_supplied(struct vboard_soc *soc)
{
	return soc->supplies[0].on || (soc->domain_supply && vboard_read(soc->board, VBOARD_POWER));
}

/* What the cores' voltage is enough for. */
static void check_voltage(struct vboard_soc *soc, const char *when)
{
	const struct vboard_supply *cores = &soc->supplies[0], *memories = &soc->supplies[1];
	unsigned int i = 0;

	while (i < ARRAY_SIZE(opps) - 1 && opps[i].hz < soc->hz)
		i++;
	if (!cores_supplied(soc))
		vboard_soc_fault(soc, "%s, %lu Hz without a supply", when, soc->hz);
	if (cores->uv < opps[i].uv)
		vboard_soc_fault(soc, "%s, %lu Hz at %d uV, which needs %d", when, soc->hz, cores->uv, opps[i].uv);
	if (memories->on && memories->uv < cores->uv)
		vboard_soc_fault(soc, "%s, memories at %d uV, cores at %d", when, memories->uv, cores->uv);
}

static bool clock_runs(struct vboard_soc *soc, unsigned int id)
{
	return soc->clocks[id].on;
}

/* The clock framework calls this for one clock at a time. */
static void clock_switch(struct vboard_clock *clock, bool on)
{
	struct vboard_soc *soc = clock->soc;
	unsigned int core;
	u32 bus = 0;

	clock->on = on;
	for (core = 0; core < VBOARD_CORES; core++)
		if (clock_runs(soc, VBOARD_CLK_ACLK(core)) && clock_runs(soc, VBOARD_CLK_HCLK(core)))
			bus |= BIT(core);
	vboard_write(soc->board, VBOARD_CLOCK, bus);
	vboard_write(soc->board, VBOARD_CLOCK_COMMON, clock_runs(soc, VBOARD_CLK_NPU) && clock_runs(soc, VBOARD_CLK_PCLK));
}

static int clock_enable(struct clk_hw *hw)
{
	struct vboard_clock *clock = container_of(hw, struct vboard_clock, hw);

	clock_switch(clock, true);
	if (clock == &clock->soc->clocks[VBOARD_CLK_NPU])
		check_voltage(clock->soc, "clock enabled");
	return 0;
}

static void clock_disable(struct clk_hw *hw)
{
	clock_switch(container_of(hw, struct vboard_clock, hw), false);
}

static int clock_is_enabled(struct clk_hw *hw)
{
	return container_of(hw, struct vboard_clock, hw)->on;
}

static unsigned long clock_recalc_rate(struct clk_hw *hw, unsigned long parent)
{
	return container_of(hw, struct vboard_clock, hw)->soc->hz;
}

/* Any rate will do. */
static int clock_determine_rate(struct clk_hw *hw, struct clk_rate_request *request)
{
	return 0;
}

static int clock_set_rate(struct clk_hw *hw, unsigned long hz, unsigned long parent)
{
	struct vboard_soc *soc = container_of(hw, struct vboard_clock, hw)->soc;

	/* RK3588's firmware hangs (gregordinary/rockchip-npu-notes, perf/clock.md). */
	if (!vboard_read(soc->board, VBOARD_POWER))
		vboard_soc_fault(soc, "clock set to %lu Hz while no power domain is on", hz);
	soc->hz = hz;
	vboard_write(soc->board, VBOARD_CLOCK_KHZ, hz / 1000);
	check_voltage(soc, "clock set");
	return 0;
}

static const struct clk_ops gate_ops = {
	.enable = clock_enable,
	.disable = clock_disable,
	.is_enabled = clock_is_enabled,
};

static const struct clk_ops npu_clock_ops = {
	.enable = clock_enable,
	.disable = clock_disable,
	.is_enabled = clock_is_enabled,
	.recalc_rate = clock_recalc_rate,
	.determine_rate = clock_determine_rate,
	.set_rate = clock_set_rate,
};

static int clocks_create(struct vboard_soc *soc)
{
	static const char * const names[VBOARD_CLK_COUNT] = {
		"vboard-aclk0", "vboard-aclk1", "vboard-aclk2", "vboard-hclk0", "vboard-hclk1", "vboard-hclk2", "vboard-npu", "vboard-pclk",
	};
	unsigned int i;
	int ret;

	soc->hz = VBOARD_BOOT_HZ;
	vboard_write(soc->board, VBOARD_CLOCK_KHZ, soc->hz / 1000);
	soc->clock_list = kzalloc(struct_size(soc->clock_list, hws, VBOARD_CLK_COUNT), GFP_KERNEL);
	if (!soc->clock_list)
		return -ENOMEM;
	soc->clock_list->num = VBOARD_CLK_COUNT;
	for (i = 0; i < VBOARD_CLK_COUNT; i++) {
		const struct clk_init_data init = {
			.name = names[i], .ops = i == VBOARD_CLK_NPU ? &npu_clock_ops : &gate_ops,
		};

		soc->clocks[i].soc = soc;
		soc->clocks[i].hw.init = &init;
		soc->clock_list->hws[i] = &soc->clocks[i].hw;
		ret = clk_hw_register(NULL, &soc->clocks[i].hw);
		if (ret)
			goto err_clocks;
	}
	ret = of_clk_add_hw_provider(soc->control, of_clk_hw_onecell_get, soc->clock_list);
	if (ret)
		goto err_clocks;
	vboard_write(soc->board, VBOARD_CLOCK, 0);
	vboard_write(soc->board, VBOARD_CLOCK_COMMON, 0);
	return 0;
err_clocks:
	while (i--)
		clk_hw_unregister(&soc->clocks[i].hw);
	kfree(soc->clock_list);
	return ret;
}

static void clocks_destroy(struct vboard_soc *soc)
{
	unsigned int i = VBOARD_CLK_COUNT;

	of_clk_del_provider(soc->control);
	while (i--)
		clk_hw_unregister(&soc->clocks[i].hw);
	kfree(soc->clock_list);
	/* As they were found. */
	vboard_write(soc->board, VBOARD_CLOCK, CORES_MASK);
	vboard_write(soc->board, VBOARD_CLOCK_COMMON, 1);
}

/* --- supplies -------------------------------------------------------------------------------------------------------------------- */

static int supply_enable(struct regulator_dev *rdev)
{
	struct vboard_supply *supply = rdev_get_drvdata(rdev);
	struct vboard_soc *soc = supply->soc;

	/* Only the vendor's binding has the memories' supply apart. */
	if (supply == &soc->supplies[0] && !soc->domain_supply && !soc->supplies[1].on)
		vboard_soc_fault(soc, "%s goes on before the memories'", supply->desc.name);
	supply->on = true;
	return 0;
}

static int supply_disable(struct regulator_dev *rdev)
{
	struct vboard_supply *supply = rdev_get_drvdata(rdev);

	if (vboard_read(supply->soc->board, VBOARD_POWER))
		dev_WARN(&supply->soc->board->pdev->dev, "driver fault: supply %s goes while a power domain is on\n", supply->desc.name);
	supply->on = false;
	if (clock_runs(supply->soc, VBOARD_CLK_NPU) && !cores_supplied(supply->soc))
		vboard_soc_fault(supply->soc, "%s goes off while the clock runs", supply->desc.name);
	if (supply == &supply->soc->supplies[1] && supply->soc->supplies[0].on)
		vboard_soc_fault(supply->soc, "%s goes off before the cores'", supply->desc.name);
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
	if (!on && vboard_read(board, VBOARD_CLOCK) & domain->cores)
		vboard_soc_fault(domain->soc, "power domain %s goes off while its clocks run", genpd->name);
	vboard_change(board, VBOARD_POWER, domain->cores, on);
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

/* Core 0's is the NPU's top: the other cores' lie below it, as in mainline's pm-domains.c. What needs all cores keeps them all on. */
static const struct {
	unsigned int parent, child;
} domain_links[] = { { 0, 1 }, { 0, 2 }, { 0, VBOARD_PD_ALL }, { 1, VBOARD_PD_ALL }, { 2, VBOARD_PD_ALL } };

static void domains_unlink(struct vboard_soc *soc, unsigned int count)
{
	while (count--)
		pm_genpd_remove_subdomain(&soc->domains[domain_links[count].parent].genpd, &soc->domains[domain_links[count].child].genpd);
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
	for (i = 0; i < ARRAY_SIZE(domain_links); i++) {
		ret = pm_genpd_add_subdomain(&soc->domains[domain_links[i].parent].genpd, &soc->domains[domain_links[i].child].genpd);
		if (ret)
			goto err_subdomains;
	}
	soc->onecell.domains = soc->list;
	soc->onecell.num_domains = VBOARD_PD_COUNT;
	ret = of_genpd_add_provider_onecell(soc->control, &soc->onecell);
	if (!ret)
		return 0;
err_subdomains:
	domains_unlink(soc, i);
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
	domains_unlink(soc, ARRAY_SIZE(domain_links));
	for (i = VBOARD_PD_COUNT; i--;)
		if (pm_genpd_remove(&soc->domains[i].genpd))
			dev_err(&soc->board->pdev->dev, "power domain %u is still in use\n", i);
	/* As they were found. */
	vboard_change(soc->board, VBOARD_POWER, CORES_MASK, true);
}

/* ------------------------------------------------------------------------------------------------------------------------------ */

struct vboard_soc *vboard_soc_create(struct vboard *board, struct device_node *control, bool domain_supply)
{
	struct vboard_soc *soc = kzalloc(sizeof(*soc), GFP_KERNEL);
	int ret;

	if (!soc)
		return ERR_PTR(-ENOMEM);
	soc->board = board;
	soc->control = of_node_get(control);
	soc->domain_supply = domain_supply;
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
	ret = clocks_create(soc);
	if (ret)
		goto err_supplies;
	ret = domains_create(soc);
	if (!ret)
		return soc;
	clocks_destroy(soc);
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
	clocks_destroy(soc);
	supply_destroy(&soc->supplies[1]);
	supply_destroy(&soc->supplies[0]);
	reset_controller_unregister(&soc->resets);
	of_node_put(soc->control);
	kfree(soc);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a platform device brings along: clocks, supplies, power domains;
 * all of it optional, and given back by devres.
 */
#include <linux/clk.h>
#include <linux/dma-mapping.h>
#include <linux/of.h>
#include <linux/of_address.h>
#include <linux/platform_device.h>
#include <linux/pm_domain.h>
#include <linux/pm_runtime.h>
#include <linux/property.h>
#include <linux/regulator/consumer.h>

#include "rknpu_power.h"

static void node_supply_disable(void *supply)
{
	regulator_disable(supply);
}

/*
 * On as long as the driver is bound, for power domains,
 * which go off and on in between, need them until after our own suspend.
 * The memories' is never below the cores': it comes first and goes last.
 */
static int node_supplies_init(struct rknpu_node *node, bool per_core)
{
	struct regulator *supply;
	int i, ret;

	node->supply_names[0] = per_core ? "npu" : "rknpu";
	node->supply_names[1] = per_core ? "sram" : "mem";
	for (i = ARRAY_SIZE(node->supplies) - 1; i >= 0; i--) {
		supply = devm_regulator_get_optional(node->dev, node->supply_names[i]);
		if (PTR_ERR(supply) == -ENODEV)
			continue;
		if (IS_ERR(supply))
			return dev_err_probe(node->dev, PTR_ERR(supply), "supply %s\n", node->supply_names[i]);
		ret = regulator_enable(supply);
		ret = ret ?: devm_add_action_or_reset(node->dev, node_supply_disable, supply);
		if (ret)
			return dev_err_probe(node->dev, ret, "supply %s\n", node->supply_names[i]);
		node->supplies[i] = supply;
	}
	return 0;
}

static void node_domains_fini(void *data)
{
	struct rknpu_node *node = data;

	while (node->nr_domains) {
		node->nr_domains--;
		if (node->domain_links[node->nr_domains])
			device_link_del(node->domain_links[node->nr_domains]);
		dev_pm_domain_detach(node->domains[node->nr_domains], true);
	}
}

/*
 * One domain is the driver core's business.
 * Of several each gets a device of its own, which is on while the node is.
 */
static int node_domains_init(struct rknpu_node *node)
{
	int count = of_count_phandle_with_args(node->dev->of_node, "power-domains", "#power-domain-cells");
	struct device *domain;
	int i, ret;

	if (count < 2)
		return 0;
	if (count > (int)ARRAY_SIZE(node->domains))
		return dev_err_probe(node->dev, -EINVAL, "%d power domains, but no NPU has more than %zu\n", count,
				     ARRAY_SIZE(node->domains));
	ret = devm_add_action(node->dev, node_domains_fini, node);
	if (ret)
		return ret;
	for (i = 0; i < count; i++) {
		domain = dev_pm_domain_attach_by_id(node->dev, i);
		if (IS_ERR_OR_NULL(domain))
			return dev_err_probe(node->dev, domain ? PTR_ERR(domain) : -ENODEV, "power domain %d\n", i);
		node->domains[i] = domain;
		node->nr_domains++;
		node->domain_links[i] = device_link_add(node->dev, domain, DL_FLAG_STATELESS | DL_FLAG_PM_RUNTIME);
		if (!node->domain_links[i])
			return dev_err_probe(node->dev, -EINVAL, "power domain %d can't be linked\n", i);
	}
	return 0;
}

/* Of mainline's nodes, a core each: how many there are below it, enabled or not. */
static unsigned int node_core_number(struct device *dev, resource_size_t start)
{
	struct device_node *child;
	unsigned int below = 0;
	struct resource res;

	for_each_child_of_node(dev->of_node->parent, child)
		if (of_device_is_compatible(child, "rockchip,rk3588-rknn-core") && !of_address_to_resource(child, 0, &res) &&
		    res.start < start)
			below++;
	return below;
}

int rknpu_node_init(struct rknpu_node *node, enum rknpu_soc_id soc, bool per_core)
{
	struct platform_device *pdev = to_platform_device(node->dev);
	struct device *dev = node->dev;
	struct resource *res = platform_get_resource(pdev, IORESOURCE_MEM, 0);
	int ret;

	if (!res)
		return dev_err_probe(dev, -ENODEV, "no registers\n");
	node->start = res->start;
	node->soc = rknpu_soc_get(soc);
	node->nr_cores = per_core ? 1 : node->soc->cores;
	node->first = per_core ? node_core_number(dev, res->start) : 0;
	if (node->first + node->nr_cores > node->soc->cores)
		return dev_err_probe(dev, -EINVAL, "core %u, but an %s has %u\n", node->first, node->soc->name, node->soc->cores);
	node->pdata = dev_get_platdata(dev);
	node->bank = !dev->of_node || platform_get_resource_byname(pdev, IORESOURCE_MEM, "mmu0");
	if (!node->bank && !device_property_present(dev, "iommus"))
		return dev_err_probe(dev, -ENODEV, "neither MMU banks (reg-names mmu0, ...) nor an IOMMU (iommus): not without\n");

	ret = devm_clk_bulk_get_all(dev, &node->clks);
	if (ret < 0)
		return dev_err_probe(dev, ret, "clocks\n");
	node->nr_clks = ret;
	ret = node_supplies_init(node, per_core);
	ret = ret ?: node_domains_init(node);
	if (ret)
		return ret;
	ret = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(node->soc->dma_bits));
	if (ret)
		return dev_err_probe(dev, ret, "%u bits of DMA address\n", node->soc->dma_bits);
	return 0;
}

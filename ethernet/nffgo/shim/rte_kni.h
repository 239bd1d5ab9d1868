// Debian's DPDK 22.11 has no KNI (kernel network interfaces). nff-go's calls of it
// compile against this, and fail when they are made.
#ifndef TRAPEZE_RTE_KNI_H
#define TRAPEZE_RTE_KNI_H

#include <stdint.h>

#include <rte_bus.h>
#include <rte_ether.h>
#include <rte_pci.h>

#include "views.h"

#define RTE_KNI_NAMESIZE 16

struct rte_kni;

struct rte_kni_conf {
	char name[RTE_KNI_NAMESIZE];
	uint32_t core_id;
	uint16_t group_id;
	unsigned mbuf_size;
	struct rte_pci_addr addr;
	struct rte_pci_id id;
	uint8_t force_bind;
	uint8_t mac_addr[6];
	uint16_t mtu;
};

struct rte_kni_ops {
	uint16_t port_id;
	int (*change_mtu)(uint16_t port, unsigned mtu);
	int (*config_network_if)(uint16_t port, uint8_t up);
	int (*config_mac_address)(uint16_t port, uint8_t mac[]);
	int (*config_promiscusity)(uint16_t port, uint8_t on);
};

static inline int rte_kni_init(unsigned most)
{
	return -1;
}

static inline struct rte_kni *rte_kni_alloc(struct rte_mempool *pool, const struct rte_kni_conf *conf, struct rte_kni_ops *ops)
{
	return NULL;
}

static inline int rte_kni_release(struct rte_kni *kni)
{
	return -1;
}

static inline int rte_kni_handle_request(struct rte_kni *kni)
{
	return -1;
}

static inline unsigned rte_kni_rx_burst(struct rte_kni *kni, struct rte_mbuf **bufs, unsigned n)
{
	return 0;
}

static inline unsigned rte_kni_tx_burst(struct rte_kni *kni, struct rte_mbuf **bufs, unsigned n)
{
	return 0;
}

// What nff-go looks up about a NIC for KNI alone, and 22.11 shows to drivers alone: no
// bus is found, so that none of it is read.
struct rte_bus {
	const char *name;
};

struct rte_pci_device {
	struct rte_pci_addr addr;
	struct rte_pci_id id;
};

#define rte_bus_find_by_device(device) ((struct rte_bus *)NULL)
#define RTE_DEV_TO_PCI(device) ((const struct rte_pci_device *)NULL)

// A port is to be configured with its longest frame in nff-go, and with its MTU in 22.11.
#undef RTE_ETHER_MAX_LEN
#define RTE_ETHER_MAX_LEN 1500

#endif

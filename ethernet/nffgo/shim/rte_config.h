// What nff-go v0.9.2, which was written for DPDK 19, asks DPDK 22.11 for by names that
// are gone. with-dpdk puts this folder before DPDK's own, whose header of this name
// every file includes first.
#include_next <rte_config.h>

#ifndef TRAPEZE_RTE_CONFIG_H
#define TRAPEZE_RTE_CONFIG_H

#define rte_eth_dev_count rte_eth_dev_count_avail

#define max_rx_pkt_len mtu // see rte_kni.h
#define DEV_RX_OFFLOAD_JUMBO_FRAME 0

#define ETH_MQ_RX_RSS RTE_ETH_MQ_RX_RSS
#define ETH_MQ_TX_NONE RTE_ETH_MQ_TX_NONE
#define DEV_RX_OFFLOAD_TIMESTAMP RTE_ETH_RX_OFFLOAD_TIMESTAMP
#define DEV_TX_OFFLOAD_MULTI_SEGS RTE_ETH_TX_OFFLOAD_MULTI_SEGS
#define DEV_TX_OFFLOAD_IPV4_CKSUM RTE_ETH_TX_OFFLOAD_IPV4_CKSUM
#define DEV_TX_OFFLOAD_UDP_CKSUM RTE_ETH_TX_OFFLOAD_UDP_CKSUM
#define DEV_TX_OFFLOAD_TCP_CKSUM RTE_ETH_TX_OFFLOAD_TCP_CKSUM

#endif

package mqnic

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// counters are the names of the statistics by index: the transaction layer packets of PCI Express from
// 0 on (fpga/common/rtl/stats_pcie_if.v), and DMA from 32 on (stats_dma_if_pcie.v; the bases are in
// mqnic_core_pcie.v). The registers tell no names. Of a
// name, dw are words of 32 bits.
var counters = map[uint32]string{
	0: "rx_tlp_mem_rd", 1: "rx_tlp_mem_wr", 2: "rx_tlp_io", 3: "rx_tlp_cfg", 4: "rx_tlp_msg", 5: "rx_tlp_cpl", 6: "rx_tlp_cpl_ur",
	7: "rx_tlp_cpl_ca", 8: "rx_tlp_atomic", 9: "rx_tlp_ep", 10: "rx_tlp_hdr_dw", 11: "rx_tlp_req_dw", 12: "rx_tlp_payload_dw", 13: "rx_tlp_cpl_dw",
	16: "tx_tlp_mem_rd", 17: "tx_tlp_mem_wr", 18: "tx_tlp_io", 19: "tx_tlp_cfg", 20: "tx_tlp_msg", 21: "tx_tlp_cpl", 22: "tx_tlp_cpl_ur",
	23: "tx_tlp_cpl_ca", 24: "tx_tlp_atomic", 25: "tx_tlp_ep", 26: "tx_tlp_hdr_dw", 27: "tx_tlp_req_dw", 28: "tx_tlp_payload_dw", 29: "tx_tlp_cpl_dw",
	32: "dma_rd_op_count", 33: "dma_rd_op_bytes", 34: "dma_rd_op_latency", 35: "dma_rd_op_error", 36: "dma_rd_req_count", 37: "dma_rd_req_latency",
	38: "dma_rd_req_timeout", 39: "dma_rd_op_table_full", 40: "dma_rd_no_tags", 41: "dma_rd_tx_limit", 42: "dma_rd_tx_stall",
	48: "dma_wr_op_count", 49: "dma_wr_op_bytes", 50: "dma_wr_op_latency", 51: "dma_wr_op_error", 52: "dma_wr_req_count", 53: "dma_wr_req_latency",
	55: "dma_wr_op_table_full", 57: "dma_wr_tx_limit", 58: "dma_wr_tx_stall",
}

// lastCounter is the highest index that has a name.
const lastCounter = 58

// statistics reads the counters that have a name.
func (r *registers) statistics(b block, end uint64) (ethernet.Table, error) {
	t := ethernet.Table{Name: "statistics", Columns: []string{"counter", "value"}, Rows: [][]string{}}
	m, err := r.readManager(b.at, kindStats.name, 0, end, 8)
	if err != nil {
		return t, err
	}
	for i := range min(m.count, lastCounter+1) {
		if name, ok := counters[i]; ok {
			t.Rows = append(t.Rows, []string{name, fmt.Sprint(r.read64(m.queue(i)))})
		}
	}
	return t, nil
}

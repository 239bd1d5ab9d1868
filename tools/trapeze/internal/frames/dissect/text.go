package dissect

import (
	"fmt"
	"strings"
)

// String is what stands behind addresses and length in the line of a frame, and a line more
// for each cell, without a newline at the end.
func (f Frame) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, "%s, endpoint %d > %d", f.Type, f.SourceEndpoint, f.DestinationEndpoint)
	if f.Cells != nil || f.Malformed != "" {
		fmt.Fprintf(&w, ", PSN %d, cells: %d", f.PSN, len(f.Cells))
	}
	if f.Malformed != "" {
		fmt.Fprintf(&w, ", malformed: %s", f.Malformed)
	}
	for i := range f.Cells {
		w.WriteString("\n    ")
		f.Cells[i].describe(&w)
	}
	return w.String()
}

func (c *Cell) describe(w *strings.Builder) {
	fmt.Fprintf(w, "channel %d", c.Channel)
	if c.VPI != 0 {
		fmt.Fprintf(w, ", VPI %d", c.VPI)
	}
	fmt.Fprintf(w, ", PTI %d", c.PTI)
	if c.CLP {
		w.WriteString(", CLP")
	}
	if c.Last {
		w.WriteString(", end of PDU")
	}
	if c.HEC {
		w.WriteString(", HEC right")
	} else {
		w.WriteString(", HEC wrong")
	}
	if p := c.PDU; p != nil {
		fmt.Fprintf(w, "; AAL5: %d bytes, UU %d, CPI %d, CRC %08x, cells seen: %d: %s", p.Length, p.UU, p.CPI, p.CRC, p.Cells, p.State)
	}
}

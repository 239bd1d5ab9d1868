package dmalog_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// A log has a line for each transfer.
func ExampleRead() {
	const log0 = `{"packet":0,"engine":"hostTx","start_us":7.5,"end_us":73.8,"bytes":8192}
{"packet":0,"engine":"netTx","start_us":20,"end_us":90.5,"bytes":8192}
`
	recorded, err := dmalog.Read(strings.NewReader(log0), "live.log")
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range recorded.Records {
		fmt.Println(r.Engine, r.Bytes, "bytes until", dmalog.Microseconds(r.End), "us")
	}
	// Output:
	// hostTx 8192 bytes until 73.8 us
	// netTx 8192 bytes until 90.5 us
}

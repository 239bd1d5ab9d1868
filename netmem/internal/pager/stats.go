package pager

// Stats has the counts of a pager.
type Stats struct {
	Missed    uint64 `json:"missed" help:"Faults that had to wait for the source." unit:"faults"`
	Returned  uint64 `json:"returned" help:"Faults that found their page in the pool." unit:"faults"`
	Written   uint64 `json:"written" help:"First writes to pages that were there." unit:"faults"`
	Ahead     uint64 `json:"ahead" help:"Pages that were read ahead." unit:"pages"`
	Unused    uint64 `json:"unused" help:"Pages read ahead that left before they were used." unit:"pages"`
	Evicted   uint64 `json:"evicted" help:"Pages that have left the mapped memory." unit:"pages"`
	Back      uint64 `json:"back" help:"Pages that were written back." unit:"pages"`
	Mapped    uint64 `json:"mapped" help:"Pages in the mapped memory." unit:"pages" kind:"gauge"`
	Pooled    uint64 `json:"pooled" help:"Local pages in buffers." unit:"pages" kind:"gauge"`
	Limit     uint64 `json:"limit" help:"Pages that may be local." unit:"pages" kind:"gauge"`
	PageSize  uint64 `json:"page_bytes" help:"Size of a page." unit:"bytes" kind:"gauge"`
	FetchTime uint64 `json:"fetch_ns" help:"Time that the source took for those in missed." unit:"nanoseconds"`
}

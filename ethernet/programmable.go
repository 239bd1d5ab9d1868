package ethernet

// Region is registers of 32 bits, at multiples of 4 bytes.
type Region interface {
	// Size returns the size in bytes.
	Size() uint64
	Read(offset uint64) (uint32, error)
	Write(offset uint64, v uint32) error
}

// Programmable is a Port of a NIC to which its owner can add logic, such as an FPGA.
type Programmable interface {
	Port
	// Application returns the id of that logic, 0 if there is none, and its registers, nil if it has
	// none. They are the caller's to use until the port is closed.
	Application() (id uint32, registers Region)
}

// Table is a part of what Driver.Dump tells of a device.
type Table struct {
	Name    string     `json:"name" help:"What the table is about."`
	Columns []string   `json:"columns" help:"What the cells of a row are."`
	Rows    [][]string `json:"rows" help:"The rows."`
}

// Dumper is a Port that tells what Driver.Dump does.
type Dumper interface {
	Port
	Dump() ([]Table, error)
}

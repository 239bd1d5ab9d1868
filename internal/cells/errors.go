package cells

import "errors"

// Why a cell or a PDU is refused. They are returned bare, so that refusing costs nothing on
// the data path.
var (
	// ErrHEC: the header check of a cell does not fit its header.
	ErrHEC = errors.New("cell header check (HEC) is wrong")
	// ErrCRC: the CRC of a PDU does not fit its bytes: damaged, or cells are missing.
	ErrCRC = errors.New("CRC of the PDU is wrong")
	// ErrLength: a PDU is shorter than 1 byte or longer than MaxPDU, or the length in
	// its trailer does not fit the number of its cells.
	ErrLength = errors.New("length of the PDU is out of range")
	// ErrAborted: the sender has given up the PDU. Its trailer has the length 0.
	ErrAborted = errors.New("PDU was given up by its sender")
	// ErrUnfinished: a Cutter was given a PDU before the one before had left.
	ErrUnfinished = errors.New("cells of an earlier PDU are still to be sent")
)

package nfs

// Kind is the sort of a packet that is re-ordered. A reply does not say which procedure it is of:
// who has the call knows.
type Kind uint8

// The kinds.
const (
	ReadReply    Kind = iota // a reply to READ, RFC 1813, 3.3.6, that has data
	WriteRequest             // a call of WRITE, RFC 1813, 3.3.7
	kinds
)

// form says how a field stands in a packet, and where its bytes go.
type form uint8

const (
	word     form = iota // four bytes: fixed part
	constant             // a word that must have a value
	counted              // a word that must be the number of bytes of data
	opaque               // length, bytes, and padding to four bytes: the length is fixed
	optional             // a word, 0 or 1, and bytes if it is 1: the word is fixed
	content              // the data: length, bytes, padding; the length is fixed
)

// field of a message.
type field struct {
	form  form
	name  string
	value uint32 // of a constant; the greatest length of an opaque; the size of what is optional
}

// Greatest and fixed sizes in bytes.
const (
	authSize       = 400 // RFC 5531, 8.2
	handleSize     = 64  // RFC 1813, 2.4: NFS3_FHSIZE
	attributesSize = 84  // RFC 1813, 2.5: fattr3
)

// fields of the kinds, from RFC 5531, 9, and RFC 1813 on.
var fields = [kinds][]field{
	ReadReply: {
		{word, "xid", 0},
		{constant, "message type", 1}, // REPLY
		{constant, "reply status", 0}, // MSG_ACCEPTED
		{word, "verifier flavor", 0},
		{opaque, "verifier length", authSize},
		{constant, "accept status", 0}, // SUCCESS
		{constant, "NFS status", 0},    // NFS3_OK
		{optional, "attributes follow", attributesSize},
		{counted, "count", 0},
		{word, "end of file", 0},
		{content, "data length", 0},
	},
	WriteRequest: {
		{word, "xid", 0},
		{constant, "message type", 0}, // CALL
		{constant, "RPC version", 2},
		{constant, "program", 100003}, // NFS
		{constant, "program version", 3},
		{constant, "procedure", 7}, // WRITE
		{word, "credentials flavor", 0},
		{opaque, "credentials length", authSize},
		{word, "verifier flavor", 0},
		{opaque, "verifier length", authSize},
		{opaque, "file handle length", handleSize},
		{word, "offset, upper half", 0},
		{word, "offset, lower half", 0},
		{counted, "count", 0},
		{word, "stable", 0},
		{content, "data length", 0},
	},
}

// Headers of IP without options, and of UDP.
const (
	ipSize      = 20
	udpSize     = 8
	headersSize = ipSize + udpSize
	wordSize    = 4
	unit        = 8 // in which channels count offsets
)

// FixedSize returns the length of the first part in bytes, which is a multiple of 8. It is
// 0 for what is no kind.
func (k Kind) FixedSize() int {
	if k >= kinds {
		return 0
	}
	n := headersSize + wordSize*len(fields[k])
	return (n + unit - 1) / unit * unit
}

func (k Kind) String() string {
	switch k {
	case ReadReply:
		return "READ reply"
	case WriteRequest:
		return "WRITE request"
	}
	return "unknown kind"
}

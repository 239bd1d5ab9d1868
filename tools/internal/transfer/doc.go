// Package transfer sends one file over a reliable, ordered message link, as a
// reliable VI is one.
//
// The sender offers name, size and permissions; the receiver accepts. Chunks
// follow in order, then an end message with the SHA-256 of all that was sent.
// The receiver compares, makes the file durable, and only then returns a
// receipt, which the sender waits for. Either side may end the transfer at any
// time with an abort message that says why.
//
//	sender    offer          chunk … chunk  end
//	receiver         accept                      receipt
//
// There is no flow control here: the link has it. What the other side sends is
// not trusted; each field is checked and an odd one ends the transfer with
// ErrProtocol.
package transfer

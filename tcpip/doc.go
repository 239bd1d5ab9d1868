// Package tcpip is TCP/IP on a NIC that the program drives itself: gVisor's netstack over a port of package
// ethernet, with no kernel in the path.
//
// Open takes the address of a port and returns a Stack, whose DialContext, Listen, ListenPacket and Resolver have the signatures that
// the standard library and gRPC ask for:
//
//	s, err := tcpip.Open(ctx, "afxdp:eth0", tcpip.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}})
//	client := http.Client{Transport: &http.Transport{DialContext: s.DialContext}}
//
// A goroutine for each queue of the port receives bursts of frames, joins segments of one flow, leaves out acknowledgements
// that the next one includes, and hands the rest to the stack. It polls while frames come, and sleeps in the port's interrupt when
// none do. What is sent goes out by the queue that the flow's hash names. Received bytes are copied once, from the port's
// buffers to the stack's, and sent ones once, the other way.
//
// docs/tcpip.md says when that is worth it.
package tcpip

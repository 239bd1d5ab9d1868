package conform

// VIs returns the checks of VIs, completion queues and memory, section by section.
func VIs() Suite { return suite(always, vis) }

var vis = []section{
	{"layout", nil},
	{"states", []entry{{"closed while connected", testCloseConnected}}},
	{"connection", nil},
	{"send-receive", []entry{
		{"unreliable", testMessagesUnreliable},
		{"scatter gather", testScatterGather},
		{"shared receive queue", testSharedReceives},
		{"notices asked for by handlers", testNotifyAgain},
		{"notices of a VI that is destroyed", testNotifyDestroyed},
	}},
	{"rdma", []entry{
		{"unreliable write", testRDMAUnreliable},
		{"mixed", testRDMAMixed},
		{"rights", testRDMARights},
		{"deregistered", testRDMADeregistered},
	}},
	{"cq", nil},
	{"memory", []entry{{"stale handle", testStaleHandle}, {"eager receive", testEagerReceive}}},
	{"reliability", []entry{
		{"order and flow control", testOrder},
		{"concurrent VIs", testConcurrentVIs},
	}},
	{"errors", []entry{
		{"posted by many", testPostedByMany},
		{"concurrent closes", testConcurrentClose},
	}},
	{"limits", []entry{{"attributes", testAttributes}, {"large messages", testMessagesLarge}}},
}

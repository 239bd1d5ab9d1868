package ethernet

import "unsafe"

// FrameBytes is how large a Frame is.
const FrameBytes = unsafe.Sizeof(Frame{})

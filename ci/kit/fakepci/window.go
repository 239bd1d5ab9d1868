package fakepci

import "fmt"

// Window is memory of the host that the device has looked up.
type Window struct {
	iova  uint64
	bytes []byte
}

// At returns n bytes of host memory; nil, and a stray, if nothing is mapped there or the
// device is no bus master. The lock is held, or the device is not open.
func (f *Function) At(w *Window, iova uint64, n int) []byte {
	if iova >= w.iova && iova-w.iova <= uint64(len(w.bytes)) && uint64(n) <= uint64(len(w.bytes))-(iova-w.iova) {
		return w.bytes[iova-w.iova:][:n]
	}
	if f.config[4]&4 == 0 {
		f.log.Strays = append(f.log.Strays, fmt.Sprintf("%d bytes at %#x, without being bus master", n, iova))
		return nil
	}
	for at, b := range f.dma {
		if size := uint64(len(b)); iova >= at && iova-at < size && uint64(n) <= size-(iova-at) {
			*w = Window{at, b}
			return w.bytes[iova-at:][:n]
		}
	}
	f.log.Strays = append(f.log.Strays, fmt.Sprintf("%d bytes at %#x, where nothing is mapped", n, iova))
	return nil
}

// Stray counts something else that must not be, inside With.
func (f *Function) Stray(what string) { f.log.Strays = append(f.log.Strays, what) }

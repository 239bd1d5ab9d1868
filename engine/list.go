package engine

// list is a list of endpoints for which something is to be done; each is on it once.
type list struct {
	members []*endpoint
	bit     listed
}

// listed is the set of the engine's lists that an endpoint is on.
type listed uint8

const (
	onReady listed = 1 << iota
	onAcks
	onPrefetch
	onUnsettled
	onBusy
)

func (l *list) add(ep *endpoint) {
	if ep.listed&l.bit == 0 {
		ep.listed |= l.bit
		l.members = append(l.members, ep)
	}
}

// keep goes through the list, and leaves on it for whom still says so. Nothing may be
// added meanwhile.
func (l *list) keep(still func(ep *endpoint) bool) {
	keep := l.members[:0]
	for _, ep := range l.members {
		if still(ep) {
			keep = append(keep, ep)
		} else {
			ep.listed &^= l.bit
		}
	}
	clear(l.members[len(keep):])
	l.members = keep
}

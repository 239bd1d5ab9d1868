package agent

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

// identity is who has connected, as the kernel says.
type identity struct {
	pid    int32 // 0: it is in another PID namespace
	uid    uint32
	gids   []uint32
	cgroup string // empty: not known
	// gone: the process has ended, and its groups cannot be told. It would evade a grant or a claim for these.
	gone bool
}

// soPeerPIDFD is SO_PEERPIDFD of Linux 6.5 (asm-generic/socket.h).
const soPeerPIDFD = 77

// identify asks the kernel whose connection it is.
func identify(c *net.UnixConn) (*identity, error) {
	cred, err := unixsocket.Peer(c)
	if err != nil {
		return nil, err
	}
	return &identity{pid: cred.Pid, uid: cred.Uid, gids: []uint32{cred.Gid}}, nil
}

// inspect finds the further groups of the process that has connected.
func (who *identity) inspect(c *net.UnixConn) {
	who.gone = true
	_ = passedfd.Control(c, func(fd int) error {
		process, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soPeerPIDFD)
		if err != nil {
			who.gone = err != unix.ENOPROTOOPT // of an older kernel it cannot be told whether /proc shows the same process
			return err
		}
		defer unix.Close(process)
		gids, cgroup := groupsOf(who.pid)
		// As long as it lives, no other process can have its number.
		if who.gone = unix.PidfdSendSignal(process, 0, nil, 0) == unix.ESRCH; !who.gone {
			who.gids, who.cgroup = append(who.gids, gids...), cgroup
		}
		return nil
	})
}

// groupsOf reads a process' groups and its control group of version 2.
func groupsOf(pid int32) (gids []uint32, cgroup string) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("Groups:")); ok {
			for _, g := range strings.Fields(string(rest)) {
				if n, err := strconv.ParseUint(g, 10, 32); err == nil {
					gids = append(gids, uint32(n))
				}
			}
		}
	}
	groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range bytes.Lines(groups) {
		if rest, ok := bytes.CutPrefix(line, []byte("0::")); ok {
			cgroup = strings.TrimSpace(string(rest))
		}
	}
	return gids, cgroup
}

// fits reports whether a grant is for a client.
func (g *Grant) fits(who *identity) bool {
	switch {
	case !g.Any && g.UIDs != nil && !slices.Contains(g.UIDs, who.uid):
		return false
	case g.GIDs != nil && !slices.ContainsFunc(g.GIDs, func(id uint32) bool { return slices.Contains(who.gids, id) }):
		return false
	case g.Cgroups != nil && !slices.ContainsFunc(g.Cgroups, func(path string) bool { return within(who.cgroup, path) }):
		return false
	}
	return true
}

// within reports whether a control group is another one, or below it.
func within(cgroup, path string) bool {
	path = strings.TrimSuffix(path, "/")
	return cgroup != "" && (cgroup == path || strings.HasPrefix(cgroup, path+"/"))
}

// grants reports whether a NIC may be had by a grant.
func (g *Grant) grants(nic string) bool { return len(g.NICs) == 0 || slices.Contains(g.NICs, nic) }

// allows reports whether a client may be a station.
func (g *Grant) allows(mac datasheet.MAC) bool {
	if mac.IsMulticast() || mac == (datasheet.MAC{}) {
		return false
	}
	if len(g.Stations) == 0 {
		return mac[0]&2 != 0 // locally administered (IEEE 802, 8.2)
	}
	return slices.ContainsFunc(g.Stations, func(s stations) bool { return s.mix(mac) == mac })
}

// draw chooses a station that the grant allows.
func (g *Grant) draw(try int) (mac datasheet.MAC) {
	_, _ = rand.Read(mac[:]) // crypto/rand.Read does not fail
	if len(g.Stations) == 0 {
		mac[0] = mac[0]&^1 | 2
		return mac
	}
	return g.Stations[try%len(g.Stations)].mix(mac)
}

// mix takes the bits that count from the range, and the others from mac.
func (s stations) mix(mac datasheet.MAC) datasheet.MAC {
	for i := range mac {
		mask := byte(0xff << (8 - min(8, max(0, s.bits-8*i))))
		mac[i] = s.mac[i]&mask | mac[i]&^mask
	}
	return mac
}

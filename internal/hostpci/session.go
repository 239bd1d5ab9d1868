package hostpci

import (
	"net/netip"
	"path"
	"slices"
	"strings"
)

// session is a login over the network. Link-local addresses have the interface as
// their zone.
type session struct{ client, server netip.Addr }

// sessions lists the logins by SSH that this process runs in: its own environment
// and those of the processes above it name them, as sudo drops the variable. What
// this user may not read is left out.
func sessions(r Root) []session {
	var list []session
	process := "self"
	// Far more than the depth of any tree of processes, should it not end.
	for range 64 {
		dir := path.Join("proc", process)
		for v := range strings.SplitSeq(r.Optional(path.Join(dir, "environ")), "\x00") {
			value, ok := strings.CutPrefix(v, "SSH_CONNECTION=")
			if !ok {
				continue
			}
			// Address and port of the client, then those of the server.
			if f := strings.Fields(value); len(f) == 4 {
				client, err := netip.ParseAddr(f[0])
				server, err2 := netip.ParseAddr(f[2])
				if s := (session{client.Unmap(), server.Unmap()}); err == nil && err2 == nil && !slices.Contains(list, s) {
					list = append(list, s)
				}
			}
		}
		process = ""
		for line := range strings.Lines(r.Optional(path.Join(dir, "status"))) {
			if parent, ok := strings.CutPrefix(line, "PPid:"); ok {
				process = strings.TrimSpace(parent)
			}
		}
		if process == "" || process == "0" {
			break
		}
	}
	return list
}

package stricttoml_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/strict"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/stricttoml"
)

type file struct {
	Mode  *string                             `toml:"mode"`
	NIC   map[string]struct{ Address string } `toml:"nic"`
	Grant []struct {
		Users []string `toml:"users"`
		VIs   *int     `toml:"vis"`
		Rings *bool    `toml:"rings"`
	} `toml:"grant"`
	Bus struct{ Read *string }
}

// TestDecode: a key in other letters, one that stands twice and one that is not there are refused in each form that a table
// has, and errors have the line and the key of the file, and no type of Go.
func TestDecode(t *testing.T) {
	var v file
	if err := stricttoml.Decode([]byte("mode = '0660'\nnic.Any.address = \"emu:\"\nbus.read = \"1\"\ngrant = [{users = [\"a\"], vis = 1}]\n"), &v); err != nil ||
		*v.Mode != "0660" || v.NIC["Any"].Address != "emu:" || *v.Bus.Read != "1" || *v.Grant[0].VIs != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	for in, want := range map[string]string{
		"[[grant]]\nusers = [\"root\"]\nUsers = [\"*\"]\n": "3 grant.Users: there is no such key",
		"[[Grant]]\nusers = [\"*\"]\n":                     "1 Grant: there is no such key",
		"[nic.a]\nAddress = \"emu:\"\n":                    "2 nic.a.Address: there is no such key",
		"[nic]\na.ADDRESS = \"emu:\"\n":                    "2 nic.a.ADDRESS: there is no such key",
		"\ngrant = [{users = [], uSers = []}]\n":           "2 grant.uSers: there is no such key",
		"[bus]\nread = \"1\"\nRead = \"2\"\n":              "3 bus.Read: there is no such key",
		"[[grant]]\n[grant.x]\n":                           "2 grant.x: there is no such key",
		"[[grant]]\nusers = []\nusers = []\n":              "3 ",
		"mode = \"1\"\nmode = \"2\"\n":                     "2 ",
		"\nmode = 0x1b0\n":                                 "2 mode: it takes a text in quotes",
		"mode = 1979-05-27\n":                              "1 mode: it takes a text in quotes",
		"[[grant]]\nusers = [65534]\n":                     "2 grant.users: it takes a text in quotes",
		"[[grant]]\nusers = \"*\"\n":                       "2 grant.users: it takes a list in brackets",
		"[[grant]]\nvis = 64.0\n":                          "2 grant.vis: it takes a whole number",
		"[[grant]]\nrings = \"on\"\n":                      "2 grant.rings: it takes true or false",
		"nic = 3\n":                                        "1 nic: it takes a table",
		"[mode]\n":                                         "",
		"[[nic]]\n":                                        "",
		"[[grant]]\nvis = 99999999999999999999\n":          "2 ",
		"[nic.a":            "1 ",
		"mode = \"\x00\"\n": "1 ",
	} {
		err := stricttoml.Decode([]byte(in), &file{})
		var bad *strict.Error
		if !errors.As(err, &bad) {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := fmt.Sprintf("%d %v", bad.Line, err); !strings.HasPrefix(got, want) || strings.Contains(got, "stricttoml") || strings.Contains(got, "struct") {
			t.Errorf("%q: %s, want %q", in, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("[[grant]]\nusers = [\"a\"]\n[nic.x]\naddress = 'y'\n"))
	f.Add([]byte("grant = [{users = [], vis = 1}]\nbus.read = \"\"\"\nx\"\"\"\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var bad *strict.Error
		if err := stricttoml.Decode(in, &file{}); err != nil && !errors.As(err, &bad) {
			t.Errorf("%v is no Error", err)
		}
	})
}

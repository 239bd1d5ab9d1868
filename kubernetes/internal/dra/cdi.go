package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/internal/strict"
)

// CDIKind is the kind of the devices in our files of the Container Device Interface.
const CDIKind = "trapeze-nic.github.io/nic"

// cdiVersion is the first version that has all that the files use.
const cdiVersion = "0.6.0"

// stateKey is the annotation with what a restarted driver has to know of a claim.
const stateKey = "trapeze-nic.github.io/claim"

// claimState is a prepared claim.
type claimState struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	UID       types.UID  `json:"uid"`
	Devices   []prepared `json:"devices"`
}

// prepared is a device that a claim has.
type prepared struct {
	Request string    `json:"request"`
	Pool    string    `json:"pool"`
	Device  string    `json:"device"`
	ShareID types.UID `json:"share,omitempty"`
	// Function that only this claim may have; Bound says that the driver has given it to VFIO.
	Function string `json:"function,omitempty"`
	Bound    bool   `json:"bound,omitempty"`
	// Share of an agent's NIC, without the control groups of its pods.
	Share *agentlink.Claim `json:"limits,omitempty"`
	// The runtime makes these edits to the container.
	edits specs.ContainerEdits
}

// cdiName is the name for the runtime of device number i of a claim.
func cdiName(uid types.UID, i int) string { return fmt.Sprintf("%s-%d", uid, i) }

// goodUID are those that the API server gives out, and those of tests.
var goodUID = regexp.MustCompile(`^[A-Za-z0-9-]{1,63}$`)

// store keeps one file for each prepared claim. The runtime reads the file, and the driver
// remembers nothing else.
type store struct{ folder string }

func (s store) path(uid types.UID) string {
	return filepath.Join(s.folder, "trapeze-"+string(uid)+".json")
}

// save writes the file of a claim at once.
func (s store) save(c claimState) error {
	state, err := json.Marshal(c)
	if err != nil {
		return err
	}
	file := specs.Spec{Version: cdiVersion, Kind: CDIKind, Annotations: map[string]string{stateKey: string(state)}}
	for i, d := range c.Devices {
		file.Devices = append(file.Devices, specs.Device{Name: cdiName(c.UID, i), ContainerEdits: d.edits})
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	// A runtime reads names that end in .json and .yaml only, not the one that the file may have before.
	return outfile.Replace(s.path(c.UID), 0o644, append(text, '\n'))
}

// load reads the file of a claim; false if there is none.
func (s store) load(uid types.UID) (c claimState, found bool, err error) {
	text, err := os.ReadFile(s.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	c, err = parseState(text)
	if err == nil && c.UID != uid {
		err = fmt.Errorf("it is that of claim %q", c.UID)
	}
	if err != nil {
		return claimState{}, false, fmt.Errorf("%s: %w", s.path(uid), err)
	}
	return c, true, nil
}

// parseState reads a file.
func parseState(text []byte) (c claimState, err error) {
	var file specs.Spec
	if err := strict.JSON(text, &file); err != nil {
		return c, err
	}
	if err := strict.JSON([]byte(file.Annotations[stateKey]), &c); err != nil {
		return claimState{}, fmt.Errorf("annotation %s: %w", stateKey, err)
	}
	if !goodUID.MatchString(string(c.UID)) || len(c.Devices) != len(file.Devices) {
		return claimState{}, fmt.Errorf("annotation %s does not fit the devices", stateKey)
	}
	for i := range c.Devices {
		c.Devices[i].edits = file.Devices[i].ContainerEdits
	}
	return c, nil
}

// remove removes the file of a claim, which need not be there.
func (s store) remove(uid types.UID) error {
	if err := os.Remove(s.path(uid)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// all lists the claims that have a file. With an error come those that could be read.
func (s store) all() (list []claimState, err error) {
	entries, err := os.ReadDir(s.folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, ours := strings.CutPrefix(e.Name(), "trapeze-")
		uid, ours2 := strings.CutSuffix(name, ".json")
		if !ours || !ours2 || !goodUID.MatchString(uid) {
			continue
		}
		c, found, e := s.load(types.UID(uid))
		if found {
			list = append(list, c)
		}
		err = errors.Join(err, e)
	}
	return list, err
}

// owner is the claim that has a PCI function, but for the one with uid.
func (s store) owner(function string, uid types.UID) (claimState, bool, error) {
	list, err := s.all()
	i := slices.IndexFunc(list, func(c claimState) bool {
		return c.UID != uid && slices.ContainsFunc(c.Devices, func(d prepared) bool { return d.Function == function })
	})
	if i < 0 {
		return claimState{}, false, err
	}
	return list[i], true, nil
}

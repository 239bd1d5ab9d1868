package bench

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"
	"testing"
	"testing/fstest"
)

// machine makes the kernel's files about hardware threads, of each of which it is told
// the siblings and the package.
func machine(threads ...[2]string) fs.FS {
	tree := fstest.MapFS{}
	for i, t := range threads {
		tree[fmt.Sprintf("cpu%d/topology/thread_siblings_list", i)] = &fstest.MapFile{Data: []byte(t[0] + "\n")}
		tree[fmt.Sprintf("cpu%d/topology/physical_package_id", i)] = &fstest.MapFile{Data: []byte(t[1] + "\n")}
	}
	return tree
}

// TestPairs: one pair of each proximity, of the threads that come first.
func TestPairs(t *testing.T) {
	// Siblings are half the machine apart, as servers number them.
	server := machine([2]string{"0,4", "0"}, [2]string{"1,5", "0"}, [2]string{"2,6", "1"}, [2]string{"3,7", "1"},
		[2]string{"0,4", "0"}, [2]string{"1,5", "0"}, [2]string{"2,6", "1"}, [2]string{"3,7", "1"})
	// Siblings are neighbours, as in virtual machines of clouds.
	cloud := machine([2]string{"0-1", "0"}, [2]string{"0-1", "0"}, [2]string{"2-3", "0"}, [2]string{"2-3", "0"})
	for _, tt := range []struct {
		name  string
		sys   fs.FS
		order []int
		want  []Pair
	}{
		{"server", server, []int{0, 1, 2, 3, 4, 5, 6, 7}, []Pair{{[]int{0, 1}, TwoCores}, {[]int{0, 4}, OneCore}}},
		{"the first are busy", server, []int{7, 5, 3, 2, 6, 4, 1, 0}, []Pair{{[]int{2, 7}, TwoCores}, {[]int{3, 7}, OneCore}}},
		{"one core of each package allowed", server, []int{0, 2}, []Pair{{[]int{0, 2}, TwoCores}}},
		{"one package comes first", server, []int{0, 2, 1}, []Pair{{[]int{0, 1}, TwoCores}}},
		{"one core allowed", server, []int{5, 1}, []Pair{{[]int{1, 5}, OneCore}}},
		{"cloud", cloud, []int{0, 1, 2, 3}, []Pair{{[]int{0, 2}, TwoCores}, {[]int{0, 1}, OneCore}}},
		{"no siblings", machine([2]string{"0", "0"}, [2]string{"1", "0"}), []int{0, 1}, []Pair{{[]int{0, 1}, TwoCores}}},
		{"the kernel tells nothing", fstest.MapFS{}, []int{2, 3, 4}, []Pair{{Cores: []int{2, 3}}}},
		{"it tells of one", machine([2]string{"0-1", "0"}), []int{0, 1}, []Pair{{Cores: []int{0, 1}}}},
		{"one thread", cloud, []int{1}, nil},
		{"none", cloud, nil, nil},
	} {
		if got := pairs(tt.sys, tt.order); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestPairOf: what is asked for stays in order, and nobody shares a core with himself.
func TestPairOf(t *testing.T) {
	c := Cores()[0]
	if got := PairOf(c, c); !reflect.DeepEqual(got, Pair{Cores: []int{c, c}}) {
		t.Errorf("%+v", got)
	}
	text, err := json.Marshal(Pair{Cores: []int{5, 1}, Proximity: OneCore})
	if want := `{"cores":[5,1],"proximity":"one core"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}

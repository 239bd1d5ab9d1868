package strict_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/strict"
)

type inner struct {
	Port int `json:"port,omitempty"`
}

type text struct {
	Users []string         `json:"users"`
	Inner inner            `json:"inner"`
	List  []*inner         `json:"list"`
	Map   map[string]inner `json:"map"`
	own   int
}

// TestJSON: a key in other letters, one that stands twice and one that is not there are refused, wherever they stand, and
// errors name them as the file does.
func TestJSON(t *testing.T) {
	var v text
	if err := strict.JSON([]byte(` {"users":["a","b"],"inner":{"port":1},"list":[{"port":2},null],"map":{"Any":{"port":3}}} `), &v); err != nil ||
		len(v.Users) != 2 || v.Inner.Port != 1 || v.List[0].Port != 2 || v.Map["Any"].Port != 3 || v.own != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	for in, want := range map[string]string{
		`{"users":["a"],"Users":["*"]}`:          "Users: there is no such key",
		`{"USERS":["*"]}`:                        "USERS: there is no such key",
		`{"users":["a"],"users":["*"]}`:          "users: it stands there twice",
		`{"inner":{"port":1,"Port":2}}`:          "inner.Port: there is no such key",
		`{"list":[{"port":1},{"poRt":2}]}`:       "list[1].poRt: there is no such key",
		`{"map":{"x":{"port":1},"x":null}}`:      "map.x: it stands there twice",
		`{"map":{"x":{"port":1,"port":1}}}`:      "map.x.port: it stands there twice",
		`{"own":1}`:                              "own: there is no such key",
		`{"inner":{"port":"1"}}`:                 "inner.port: a string cannot stand there",
		`{"inner":[1]}`:                          "inner: an array cannot stand there",
		`{"users":{"a":1}}`:                      "users.a: there is no such key",
		`{} {}`:                                  "there is more behind it",
		`{"users":`:                              "",
		`{"users":["a"`:                          "",
		``:                                       "EOF",
		strings.Repeat(`[`, 1<<20):               "an array cannot stand there",
		strings.Repeat(`{"inner":`, 1<<16):       "inner.inner: there is no such key",
		"{\"\\u0055sers\":[\"*\"]}":              "Users: there is no such key",
		"{\"users\":[\"a\"],\"u\\u0073ers\":[]}": "users: it stands there twice",
	} {
		var bad *strict.Error
		if err := strict.JSON([]byte(in), &text{}); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go") {
			t.Errorf("%.80s: %v, want %q", in, err, want)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"users":["a"],"list":[{"port":1}]}`))
	f.Add([]byte(`{"map":{"x":{"port":1,"port":1}}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var bad *strict.Error
		if err := strict.JSON(in, &text{}); err != nil && !errors.As(err, &bad) {
			t.Errorf("%v is no Error", err)
		}
	})
}

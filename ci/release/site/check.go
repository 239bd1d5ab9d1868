package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"

	"golang.org/x/net/html"
)

// check fails if a link of a page leads to no file of the site, or to no place in it. Links to
// other hosts are not looked up.
func (s *site) check() error {
	var errs []error
	places := map[string]map[string]bool{}
	links := map[string][]string{}
	for name, content := range s.files {
		if path.Ext(name) != ".html" {
			continue
		}
		tree, err := html.Parse(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		places[name] = map[string]bool{}
		for n := range tree.Descendants() {
			for _, a := range n.Attr {
				switch a.Key {
				case "id":
					places[name][a.Val] = true
				case "href", "src":
					links[name] = append(links[name], a.Val)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(links)) {
		for _, l := range links[name] {
			u, err := url.Parse(l)
			if err != nil || u.Scheme != "" {
				errs = append(errs, err)
				continue
			}
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			switch _, there := s.files[to]; {
			case !there:
				errs = append(errs, fmt.Errorf("%s: link %s leads nowhere", name, l))
			case u.Fragment != "" && !places[to][u.Fragment]:
				errs = append(errs, fmt.Errorf("%s: link %s: no such place", name, l))
			}
		}
	}
	return errors.Join(errs...)
}

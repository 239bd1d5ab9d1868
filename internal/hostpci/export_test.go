package hostpci

import "slices"

// Records lists the functions that Bind has taken and Unbind has not yet given
// back, sorted.
func Records(r Root) ([]string, error) {
	names, err := r.Names(recordDir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, n := range names {
		if address := n[:max(len(n)-len(".json"), 0)]; n == address+".json" && functionName.MatchString(address) {
			list = append(list, address)
		}
	}
	slices.Sort(list)
	return list, nil
}

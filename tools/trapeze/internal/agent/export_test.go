package agent

// ParseState and ParseClient are for the tests of what an agent may pass.
func ParseState(text []byte) error {
	_, err := parseState(text)
	return err
}

func ParseClient(text []byte) error {
	_, err := parseClient(text, 3)
	return err
}

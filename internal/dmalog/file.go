package dmalog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
)

// Limits of a log file: what a picture can show and a reader can hold.
const (
	MaxRecords = 4 << 20
	maxLine    = 4096
	maxMicros  = 1e12 // eleven days
	maxPacket  = math.MaxInt32
	maxBytes   = 1 << 30
	maxBuffer  = 1023 // pipeline.MaxBuffers - 1
)

type line struct {
	Packet  float64 `json:"packet"`
	Flow    int     `json:"flow,omitempty"`
	Engine  string  `json:"engine"`
	Start   float64 `json:"start_us"`
	End     float64 `json:"end_us"`
	Bytes   float64 `json:"bytes"`
	Queued  int     `json:"queued,omitempty"`
	Buffer  int     `json:"buffer,omitempty"`
	Control bool    `json:"control,omitempty"`
}

// Read parses a log; name is used in errors, which are *LineError or come from r.
// Empty lines are skipped. Nothing is returned beside an error.
func Read(r io.Reader, name string) (Log, error) {
	var log Log
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, maxLine), maxLine)
	n := 0
	for s.Scan() {
		n++
		text := bytes.TrimSpace(s.Bytes())
		if len(text) == 0 {
			continue
		}
		if log.Setup == nil && len(log.Records) == 0 && isSetup(text) {
			setup, key, hint := parseSetup(text)
			if hint != "" {
				return Log{}, &LineError{File: name, Line: n, Key: key, Err: ErrSetup, Hint: hint}
			}
			log.Setup = setup
			continue
		}
		if len(log.Records) == MaxRecords {
			return Log{}, &LineError{File: name, Line: n, Err: ErrRecord, Hint: "at most " + strconv.Itoa(MaxRecords) + " records"}
		}
		record, key, hint := parse(text)
		if hint != "" {
			return Log{}, &LineError{File: name, Line: n, Key: key, Err: ErrRecord, Hint: hint}
		}
		log.Records = append(log.Records, record)
	}
	if err := s.Err(); err != nil {
		return Log{}, &LineError{File: name, Line: n + 1, Err: err, Hint: "lines of at most " + strconv.Itoa(maxLine) + " bytes"}
	}
	return log, nil
}

// decode reads the one object of a line, with some keys. hint is empty if there is one.
func decode(text []byte, into any, keys string) (hint string) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return "an object with " + keys + ": " + err.Error()
	}
	if d.More() {
		return "one object on a line"
	}
	return ""
}

// parse returns the record of a line, or the key that is wrong and what it may be.
func parse(text []byte) (r Record, key, hint string) {
	l := line{Packet: math.NaN(), Start: math.NaN(), End: math.NaN(), Bytes: math.NaN()} // what is missing is in no range
	if hint := decode(text, &l, "packet, engine, start_us, end_us, bytes"); hint != "" {
		return r, "", hint
	}
	engine, known := ParseEngine(l.Engine)
	switch {
	case !whole(l.Packet, maxPacket):
		return r, "packet", "a whole number from 0 to " + strconv.Itoa(maxPacket)
	case l.Flow < 0 || l.Flow > 1:
		return r, "flow", "0 or 1"
	case !known:
		return r, "engine", "hostTx, netTx, netRcv or hostRcv"
	case !(l.Start >= 0 && l.Start <= maxMicros):
		return r, "start_us", "0 to 1e12 microseconds"
	case !(l.End >= l.Start && l.End <= maxMicros):
		return r, "end_us", "start_us to 1e12 microseconds"
	case !whole(l.Bytes, maxBytes):
		return r, "bytes", "a whole number from 0 to " + strconv.Itoa(maxBytes)
	case l.Queued < 0 || l.Queued > maxPacket:
		return r, "queued", "a whole number from 0 to " + strconv.Itoa(maxPacket)
	case l.Buffer < 0 || l.Buffer > maxBuffer:
		return r, "buffer", "a whole number from 0 to " + strconv.Itoa(maxBuffer)
	}
	return Record{
		Packet: int(l.Packet), Flow: l.Flow, Engine: engine, Bytes: int(l.Bytes), Queued: l.Queued, Buffer: l.Buffer, Control: l.Control,
		Start: int64(math.Round(l.Start * 1e6)), End: int64(math.Round(l.End * 1e6)),
	}, "", ""
}

// whole reports whether v is a whole number from 0 to most.
func whole(v, most float64) bool { return v >= 0 && v <= most && v == math.Trunc(v) }

// Write writes a log.
func Write(w io.Writer, log Log) error {
	buffered := bufio.NewWriter(w)
	e := json.NewEncoder(buffered)
	if log.Setup != nil {
		s := *log.Setup
		s.Version = setupVersion
		if err := e.Encode(s); err != nil {
			return err
		}
	}
	for _, r := range log.Records {
		if err := e.Encode(line{float64(r.Packet), r.Flow, r.Engine.String(), Microseconds(r.Start), Microseconds(r.End),
			float64(r.Bytes), r.Queued, r.Buffer, r.Control}); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

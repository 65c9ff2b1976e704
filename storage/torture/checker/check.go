package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// One line of a history. Times are nanoseconds of one monotonic clock. A write is one value, an append puts one value
// behind a list; no value is written twice. `List` is what was read, or what the list was right after an append;
// `Seen` is what was read of a register.
type line struct {
	Client  int     `json:"client"`
	Kind    string  `json:"kind"`
	Key     int64   `json:"key"`
	Op      string  `json:"op"`
	Value   int64   `json:"value"`
	Seen    int64   `json:"seen"`
	List    []int64 `json:"list"`
	Call    int64   `json:"call"`
	Return  int64   `json:"return"`
	Outcome string  `json:"outcome"`
}

type finding struct {
	Kind string `json:"kind"`
	Key  int64  `json:"key"`
	Text string `json:"text"`
}

type verdict struct {
	Operations int       `json:"operations"`
	Keys       int       `json:"keys"`
	Unknown    int       `json:"unknown"`
	Observed   int       `json:"observed"`
	Wrong      []finding `json:"wrong"`
	// Histories that the search gave up on: no verdict, neither good nor bad.
	Undecided []finding `json:"undecided"`
}

// Search time for each key.
const patience = 60 * time.Second

type place struct {
	kind string
	key  int64
}

func checkMain(arguments []string) int {
	if len(arguments) != 1 && (len(arguments) != 3 || arguments[1] != "--pictures") {
		fmt.Fprintln(os.Stderr, "usage: weir-torture check HISTORY.jsonl [--pictures DIR]")
		return 2
	}
	lines, err := readHistory(arguments[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	pictures := ""
	if len(arguments) == 3 {
		pictures = arguments[2]
	}
	said := check(lines, pictures)
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if len(said.Wrong)+len(said.Undecided) > 0 {
		return 1
	}
	return 0
}

func readHistory(path string) ([]line, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the history cannot be opened: %w", err)
	}
	defer file.Close()
	var lines []line
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<26)
	for scanner.Scan() {
		var one line
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: line %d is no operation: %w", path, len(lines)+1, err)
		}
		lines = append(lines, one)
	}
	return lines, scanner.Err()
}

func check(lines []line, pictures string) verdict {
	said := verdict{Wrong: []finding{}, Undecided: []finding{}}
	byPlace := map[place][]line{}
	for _, one := range lines {
		if (one.Kind == "register" || one.Kind == "list") && one.Outcome != "failed" {
			at := place{one.Kind, one.Key}
			byPlace[at] = append(byPlace[at], one)
		}
	}
	places := make([]place, 0, len(byPlace))
	for at := range byPlace {
		places = append(places, at)
	}
	sort.Slice(places, func(i, j int) bool {
		return places[i].kind < places[j].kind || places[i].kind == places[j].kind && places[i].key < places[j].key
	})
	said.Keys = len(places)
	for _, at := range places {
		operations := bounded(byPlace[at], &said)
		said.Operations += len(operations)
		model := models[at.kind]
		result, info := porcupine.CheckOperationsVerbose(model, operations, patience)
		switch result {
		case porcupine.Illegal:
			text := explain(at, byPlace[at]) + picture(model, info, pictures, at)
			said.Wrong = append(said.Wrong, finding{at.kind, at.key, text})
		case porcupine.Unknown:
			text := fmt.Sprintf("no verdict within %s on %d operations", patience, len(operations))
			said.Undecided = append(said.Undecided, finding{at.kind, at.key, text})
		}
	}
	return said
}

// bounded makes a history that is linearizable exactly when the given one is, and quick to search.
//
// A change of unknown outcome may take effect at any time after its call, or never. Where nobody has seen its value,
// leaving it out changes nothing: in any order that explains the rest, it can be put at the very end; and out of any
// order that has it, it can be taken, because no read lies between it and the next write, or behind it. Where
// somebody has seen it, it took effect before the first of them returned.
func bounded(lines []line, said *verdict) []porcupine.Operation {
	firstSeen := map[int64]int64{}
	see := func(value, at int64) {
		if before, known := firstSeen[value]; !known || at < before {
			firstSeen[value] = at
		}
	}
	for _, one := range lines {
		if one.Outcome != "ok" {
			continue
		}
		if one.Op == "read" && one.Kind == "register" {
			see(one.Seen, one.Return)
		}
		for _, value := range one.List {
			see(value, one.Return)
		}
	}
	var operations []porcupine.Operation
	for _, one := range lines {
		ends := one.Return
		if one.Outcome != "ok" {
			if one.Op == "read" {
				continue
			}
			said.Unknown++
			seen, known := firstSeen[one.Value]
			if !known {
				continue
			}
			said.Observed++
			// Seen before it was called: nothing explains that, and the search says so.
			ends = max(seen, one.Call)
		}
		operations = append(operations, porcupine.Operation{
			ClientId: one.Client, Input: one, Call: one.Call, Output: one, Return: ends,
		})
	}
	return operations
}

var models = map[string]porcupine.Model{"register": registers, "list": lists}

var registers = porcupine.Model{
	Init: func() interface{} { return int64(0) },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		one := input.(line)
		if one.Op == "write" {
			return true, one.Value
		}
		return one.Seen == state.(int64), state
	},
	DescribeOperation: func(input, _ interface{}) string {
		one := input.(line)
		if one.Op == "write" {
			return fmt.Sprintf("write %d (%s)", one.Value, one.Outcome)
		}
		return fmt.Sprintf("read %d", one.Seen)
	},
}

var lists = porcupine.Model{
	Init: func() interface{} { return []int64(nil) },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		one, now := input.(line), state.([]int64)
		if one.Op == "read" {
			return slices.Equal(one.List, now), state
		}
		longer := append(slices.Clip(now), one.Value)
		return one.Outcome != "ok" || slices.Equal(one.List, longer), longer
	},
	Equal: func(one, other interface{}) bool { return slices.Equal(one.([]int64), other.([]int64)) },
	DescribeOperation: func(input, _ interface{}) string {
		one := input.(line)
		if one.Op == "read" {
			return fmt.Sprintf("read %v", one.List)
		}
		return fmt.Sprintf("append %d (%s) -> %v", one.Value, one.Outcome, one.List)
	},
	DescribeState: func(state interface{}) string { return fmt.Sprint(state) },
}

// explain looks for the plain ways in which a history can be wrong, because "not linearizable" helps nobody.
func explain(at place, lines []line) string {
	text := fmt.Sprintf("%s %d: no order of its %d operations explains what was seen", at.kind, at.key, len(lines))
	last := line{Return: math.MinInt64}
	for _, one := range lines {
		if one.Op == "read" && one.Outcome == "ok" && one.Call > last.Return {
			last = one
		}
	}
	if at.kind == "register" {
		return text + fmt.Sprintf("; the last read saw %d", last.Seen)
	}
	var missing []int64
	for _, one := range lines {
		if one.Op == "append" && one.Outcome == "ok" && one.Return < last.Call && !slices.Contains(last.List, one.Value) {
			missing = append(missing, one.Value)
		}
	}
	if len(missing) > 0 {
		return text + fmt.Sprintf("; the last read lacks %d acknowledged values: %v", len(missing), missing)
	}
	return text
}

func picture(model porcupine.Model, info porcupine.LinearizationInfo, folder string, at place) string {
	if folder == "" {
		return ""
	}
	path := filepath.Join(folder, fmt.Sprintf("%s-%d.html", at.kind, at.key))
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		return fmt.Sprintf("; no picture: %v", err)
	}
	return "; picture: " + path
}

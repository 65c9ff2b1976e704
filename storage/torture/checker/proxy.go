package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// What a link does to what passes, in both directions where nothing else is said.
type weather struct {
	// Nothing passes; connections stay, and what they have sent arrives once the link is thawed, as after a partition.
	Frozen bool `json:"frozen"`
	// The same of one direction alone: of what goes to the server, or of what comes back from it.
	FrozenThere bool `json:"frozen_there"`
	FrozenBack  bool `json:"frozen_back"`
	// Connections are reset, and new ones too.
	Closed bool `json:"closed"`
	// Everything arrives this much later, and up to as much again later than that.
	DelayMs  int `json:"delay_ms"`
	JitterMs int `json:"jitter_ms"`
	// The share of pieces that arrive late by what TCP takes to notice a lost packet and send it again.
	Loss float64 `json:"loss"`
	// How often each connection is reset.
	CutsPerSecond float64 `json:"cuts_per_second"`
}

type order struct {
	Op   string `json:"op"`
	Link string `json:"link"`
	To   string `json:"to"`
	Seed uint64 `json:"seed"`
	weather
}

type answer struct {
	Port  int    `json:"port,omitempty"`
	Error string `json:"error,omitempty"`
}

type link struct {
	to       string
	listener net.Listener
	mutex    sync.Mutex
	changed  *sync.Cond
	weather  weather
	random   *rand.Rand
	open     map[net.Conn]struct{}
}

// proxyMain opens and changes links until its standard input ends, and then resets all of them by ending.
func proxyMain(orders io.Reader, answers io.Writer) int {
	links := map[string]*link{}
	scanner, encoder := bufio.NewScanner(orders), json.NewEncoder(answers)
	for scanner.Scan() {
		var one order
		said := answer{}
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			said.Error = err.Error()
		} else {
			said = obey(links, one)
		}
		if err := encoder.Encode(said); err != nil {
			return 1
		}
	}
	return 0
}

func obey(links map[string]*link, one order) answer {
	known := links[one.Link]
	switch {
	case one.Op == "open" && known == nil:
		opened, err := openLink(one.To, one.Seed)
		if err != nil {
			return answer{Error: err.Error()}
		}
		links[one.Link] = opened
		return answer{Port: opened.listener.Addr().(*net.TCPAddr).Port}
	case one.Op == "set" && known != nil:
		known.set(one.weather)
		return answer{}
	}
	return answer{Error: fmt.Sprintf("cannot %q the link %q", one.Op, one.Link)}
}

func openLink(to string, seed uint64) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	opened := &link{to: to, listener: listener, random: rand.New(rand.NewPCG(seed, 0)), open: map[net.Conn]struct{}{}}
	opened.changed = sync.NewCond(&opened.mutex)
	go opened.accept()
	go opened.cut()
	return opened, nil
}

func (it *link) set(now weather) {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	it.weather = now
	if now.Closed {
		it.resetAll()
	}
	it.changed.Broadcast()
}

func (it *link) resetAll() {
	for connection := range it.open {
		reset(connection)
	}
}

func reset(connection net.Conn) {
	// Without lingering, closing sends RST.
	if tcp, is := connection.(*net.TCPConn); is {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}

// How often connections are considered for a cut.
const cutStep = 50 * time.Millisecond

func (it *link) cut() {
	for range time.Tick(cutStep) {
		it.mutex.Lock()
		for connection := range it.open {
			if it.random.Float64() < it.weather.CutsPerSecond*cutStep.Seconds() {
				reset(connection)
			}
		}
		it.mutex.Unlock()
	}
}

func (it *link) accept() {
	for {
		near, err := it.listener.Accept()
		if err != nil {
			return
		}
		go it.carry(near)
	}
}

func (it *link) carry(near net.Conn) {
	it.mutex.Lock()
	closed := it.weather.Closed
	it.mutex.Unlock()
	if closed {
		reset(near)
		return
	}
	far, err := net.DialTimeout("tcp", it.to, 10*time.Second)
	if err != nil {
		reset(near)
		return
	}
	it.mutex.Lock()
	it.open[near] = struct{}{}
	it.mutex.Unlock()
	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); it.pass(near, far, false) }()
	go func() { defer both.Done(); it.pass(far, near, true) }()
	both.Wait()
	it.mutex.Lock()
	delete(it.open, near)
	it.mutex.Unlock()
	reset(near)
	reset(far)
}

type piece struct {
	due  time.Time
	data []byte
}

// pass carries one direction, in order. An end is passed on as the end of this direction alone, since who fetches WAL
// says so when it has asked; a reset ends both.
func (it *link) pass(from, to net.Conn, back bool) {
	pieces := make(chan piece, 256)
	var failed error
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 32<<10)
			length, err := from.Read(data)
			if length > 0 {
				pieces <- piece{it.arrival(), data[:length]}
			}
			if err != nil {
				failed = err
				return
			}
		}
	}()
	for one := range pieces {
		time.Sleep(time.Until(one.due))
		it.untilThawed(back)
		if _, err := to.Write(one.data); err != nil {
			reset(from)
			reset(to)
			for range pieces { //nolint:revive // so that the reader can end
			}
			return
		}
	}
	it.untilThawed(back)
	if failed == io.EOF {
		_ = to.(*net.TCPConn).CloseWrite()
		return
	}
	reset(from)
	reset(to)
}

func (it *link) arrival() time.Time {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	late := time.Duration(it.weather.DelayMs) * time.Millisecond
	if it.weather.JitterMs > 0 {
		late += time.Duration(it.random.IntN(it.weather.JitterMs)) * time.Millisecond
	}
	if it.random.Float64() < it.weather.Loss {
		// The first repetition comes after 200 ms at the earliest, the second after twice as long.
		late += time.Duration(200+it.random.IntN(600)) * time.Millisecond
	}
	return time.Now().Add(late)
}

func (it *link) untilThawed(back bool) {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	for it.weather.holds(back) && !it.weather.Closed {
		it.changed.Wait()
	}
}

func (now weather) holds(back bool) bool {
	return now.Frozen || back && now.FrozenBack || !back && now.FrozenThere
}

// weir-torture is what the torture of storage needs beside Python: a checker of clients' histories and a network that
// misbehaves when it is told to.
//
//	weir-torture check HISTORY.jsonl [--pictures DIR]   a verdict on standard output, as JSON
//	weir-torture proxy                                  TCP links, told what to do on standard input
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "check":
			os.Exit(checkMain(os.Args[2:]))
		case "proxy":
			os.Exit(proxyMain(os.Stdin, os.Stdout))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: weir-torture check HISTORY.jsonl [--pictures DIR] | weir-torture proxy")
	os.Exit(2)
}

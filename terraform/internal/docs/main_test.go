package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestTheCommittedReferenceIsWhatTheSchemaSays(t *testing.T) {
	t.Chdir("../..")
	pages, err := render()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range pages {
		committed, err := os.ReadFile(name)
		if err != nil || string(committed) != text {
			t.Errorf("terraform/%s is not current: run `go run ./internal/docs` in terraform/ (%v)", name, err)
		}
	}
	err = filepath.WalkDir("docs", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && pages[name] == "" {
			t.Errorf("terraform/%s is of nothing that there is: remove it", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// wheelTags are the platforms of Python's packages: the oldest systems that Go 1.26 supports.
var wheelTags = map[target]string{
	{"linux", "amd64"}:   "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
	{"linux", "arm64"}:   "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
	{"darwin", "amd64"}:  "macosx_12_0_x86_64",
	{"darwin", "arm64"}:  "macosx_12_0_arm64",
	{"windows", "amd64"}: "win_amd64",
	{"windows", "arm64"}: "win_arm64",
}

// npmNames are the platforms as Node names them.
var npmNames = map[target]string{
	{"linux", "amd64"}: "linux-x64", {"linux", "arm64"}: "linux-arm64", {"darwin", "amd64"}: "darwin-x64", {"darwin", "arm64"}: "darwin-arm64",
	{"windows", "amd64"}: "win32-x64", {"windows", "arm64"}: "win32-arm64",
}

// wheels writes a pure wheel, and one with dbctl for each platform that Python has a name for.
func wheels(ctx context.Context, r *release) error {
	dir := filepath.Join(r.root, "clients", "python")
	b, err := os.ReadFile(filepath.Join(dir, "pyproject.toml"))
	if err != nil {
		return err
	}
	found := regexp.MustCompile(`(?m)^version = "(.*)"$`).FindSubmatch(b)
	if found == nil {
		return fmt.Errorf("pyproject.toml: found no line with a version")
	}
	if string(found[1]) != r.number() {
		return fmt.Errorf("pyproject.toml: got the version %q, expected %q; change it there, or leave wheels out with -only", found[1], r.number())
	}
	wheel := func(env ...string) error {
		env = append(env, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix()))
		_, err := r.output(ctx, dir, env, "python3", "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "-w", r.out, ".")
		return err
	}
	if err := wheel(); err != nil {
		return err
	}
	for _, t := range r.targets {
		if wheelTags[t] == "" {
			continue
		}
		program, err := r.program(ctx, t)
		if err != nil {
			return err
		}
		if err := wheel("CTXPAGE_BINARY="+program, "CTXPAGE_PLATFORM="+wheelTags[t]); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return r.wroteAll("*.whl")
}

// npmPackages writes the package ctxpage, and one with dbctl for each platform that Node has a name for.
func npmPackages(ctx context.Context, r *release) error {
	dir := filepath.Join(r.root, "clients", "typescript")
	b, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return err
	}
	var about struct{ Version string }
	if err := json.Unmarshal(b, &about); err != nil {
		return fmt.Errorf("package.json: %w", err)
	}
	if about.Version != r.number() {
		return fmt.Errorf("package.json: got the version %q, expected %q; change it there, or leave npm out with -only", about.Version, r.number())
	}
	for _, args := range [][]string{{"install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--omit=optional"}, {"run", "--silent", "build"}, {"pack", "--silent", "--pack-destination", r.out}} {
		if _, err := r.output(ctx, dir, nil, "npm", args...); err != nil {
			return err
		}
	}
	for _, t := range r.targets {
		if npmNames[t] == "" {
			continue
		}
		program, err := r.program(ctx, t)
		if err != nil {
			return err
		}
		if _, err := r.output(ctx, dir, nil, "node", filepath.Join("scripts", "pack-platform.mjs"), npmNames[t], program, r.out); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return r.wroteAll("*.tgz")
}

func (r *release) wroteAll(pattern string) error {
	made, err := filepath.Glob(filepath.Join(r.out, pattern))
	if err != nil {
		return err
	}
	if len(made) == 0 {
		return fmt.Errorf("nothing was written to %s, expected %s", r.out, pattern)
	}
	for _, path := range made {
		if err := r.wrote(path); err != nil {
			return err
		}
	}
	return nil
}

// sbom writes the parts list of each program: the modules that it contains, with versions, sums and the licences that their files state.
func sbom(ctx context.Context, r *release) error {
	for _, t := range r.targets {
		program, err := r.program(ctx, t)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("dbctl_%s_%s_%s.cdx.json", r.number(), t.os, t.arch)
		path := filepath.Join(r.out, name)
		args := strings.Fields("tool cyclonedx-gomod bin -json -noserial -notimestamp -version " + r.version + " -output")
		if _, err := r.output(ctx, filepath.Join(r.root, "tools", "release"), nil, "go", append(args, path, program)...); err != nil {
			return err
		}
		if err := r.wrote(path); err != nil {
			return err
		}
	}
	return nil
}

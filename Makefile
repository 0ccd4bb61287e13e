test:
	cargo test
.PHONY: test

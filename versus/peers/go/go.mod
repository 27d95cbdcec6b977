module versus

go 1.24

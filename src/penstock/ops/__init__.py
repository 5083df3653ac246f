"""Everything on one machine: the parts of Penstock as child processes of one."""

"""The basis of all structures: the kernel decorator and its cache, blocks of many versions in one reserved array, bits, encoded endpoints,
intervals as columns. Start with `arena.Arena` (copy-on-write after LMDB) and `kernel.kernel`."""

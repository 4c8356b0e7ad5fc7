/*
 * fuzz_replay.c - runs a fuzz target on the files that are named, once each, where there is no
 * fuzzer: for the coverage of what is kept in fuzz/corpus/.
 */
#include "fuzz/fuzz.h"

/* For targets that have nothing to prepare. */
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return 0;
}

int main(int argc, char **argv)
{
    static uint8_t data[1 << 20];
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f) {
            perror(argv[i]);
            return 1;
        }
        size_t n = fread(data, 1, sizeof data, f);
        fclose(f);
        LLVMFuzzerTestOneInput(data, n);
    }
    return argc < 2;
}

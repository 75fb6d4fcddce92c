/* A CUDA driver with GPUs in main memory, for tests of the program of `corral nodes test`. GPUS is the number of
   GPUs. With FAULT=memory the second GPU loses a bit; with FAULT=lost its context cannot be made. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int current;

static int faulty(const char *name) {
    const char *fault = getenv("FAULT");
    return fault != NULL && strcmp(fault, name) == 0 && current == 1;
}

int cuInit(unsigned flags) { return flags != 0; }

int cuDeviceGetCount(int *count) {
    *count = atoi(getenv("GPUS"));
    return 0;
}

int cuDeviceGet(int *device, int index) {
    *device = current = index;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, size, "GPU in memory %d", device);
    return 0;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == 46 ? "CUDA_ERROR_DEVICE_UNAVAILABLE" : "CUDA_ERROR_UNKNOWN";
    return 0;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    *context = &current;
    return faulty("lost") ? 46 : 0;
}

int cuCtxDestroy_v2(void *context) { return context != NULL && context != &current; }

int cuMemAlloc_v2(uint64_t *memory, size_t size) {
    *memory = (uint64_t)(uintptr_t)malloc(size);
    return *memory == 0;
}

int cuMemFree_v2(uint64_t memory) {
    free((void *)(uintptr_t)memory);
    return 0;
}

int cuMemsetD32_v2(uint64_t memory, unsigned value, size_t count) {
    for (size_t at = 0; at < count; at++)
        ((uint32_t *)(uintptr_t)memory)[at] = value;
    return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    memcpy(to, (void *)(uintptr_t)from, size);
    if (faulty("memory"))
        ((uint8_t *)to)[size / 2] ^= 4;
    return 0;
}

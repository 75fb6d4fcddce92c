/* A small library with NVML's symbols. What it says stands in the file named by CORRAL_TEST_NVML, one word:
   a utilisation in percent, "hang", or "lost". Two GPUs, joined by one NVLink. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int status;
typedef struct { unsigned index; } *device;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilisation;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;

static struct { unsigned index; } gpus[2] = {{0}, {1}};

static int now(void) {
    char word[32] = "0";
    FILE *file = fopen(getenv("CORRAL_TEST_NVML"), "r");
    if (file && fscanf(file, "%31s", word) != 1) strcpy(word, "0");
    if (file) fclose(file);
    if (!strcmp(word, "hang")) for (;;) pause();
    return strcmp(word, "lost") ? atoi(word) : -1;
}

status nvmlInitWithFlags(unsigned flags) { (void)flags; now(); return 0; }
status nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(status code) { return code == 15 ? "GPU is lost" : "Not Supported"; }
status nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
status nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found) { *found = (device)&gpus[index]; return 0; }
status nvmlDeviceGetUUID(device gpu, char *text, unsigned size) {
    snprintf(text, size, "GPU-00000000-0000-0000-0000-00000000000%u", gpu->index);
    return 0;
}
status nvmlDeviceGetName(device gpu, char *text, unsigned size) { (void)gpu; snprintf(text, size, "Test GPU"); return 0; }
status nvmlDeviceGetMemoryInfo(device gpu, memory *found) {
    (void)gpu;
    found->total = 16ull << 30;
    found->used = 1ull << 30;
    found->free = found->total - found->used;
    return 0;
}
status nvmlDeviceGetUtilizationRates(device gpu, utilisation *found) {
    int percent = now();
    if (percent < 0) return 15;
    found->gpu = gpu->index ? 0 : percent;
    found->memory = 0;
    return 0;
}
status nvmlDeviceGetPowerUsage(device gpu, unsigned *milliwatts) { (void)gpu; *milliwatts = 123456; return 0; }
status nvmlDeviceGetTemperature(device gpu, int sensor, unsigned *found) { (void)gpu, (void)sensor, (void)found; return 3; }
static void place(unsigned index, pci *found) {
    memset(found, 0, sizeof *found);
    snprintf(found->bus_id, sizeof found->bus_id, "00000000:%02X:00.0", 0x3b + index);
}
status nvmlDeviceGetPciInfo_v3(device gpu, pci *found) { place(gpu->index, found); return 0; }
status nvmlDeviceGetNvLinkState(device gpu, unsigned link, unsigned *active) {
    (void)gpu;
    *active = link == 0;
    return link < 2 ? 0 : 2;
}
status nvmlDeviceGetNvLinkRemotePciInfo_v2(device gpu, unsigned link, pci *found) {
    (void)link;
    place(!gpu->index, found);
    return 0;
}

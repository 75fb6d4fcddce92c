/* A small library with NVML's symbols, for the true pynvml. What it says stands in the file that
   CORRAL_TEST_NVML names, one "key value" a line and read anew at every question: see tests/agent/fake_nvml.py.
   Keys of one GPU begin with its number and a point; what is not there has a sensible default. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 16
#define MIB (1ull << 20)
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NOT_LOADED = 9, TIMEOUT = 10, LOST = 15 };

typedef int status;
typedef struct { unsigned index, mig; } gpu;
typedef gpu *device;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilisation;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
typedef struct { device gpu; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event;
typedef struct { long told; } *events;

static gpu gpus[MOST], slices[MOST][8];

/* --- the steering file --- */

static int word(const char *key, char *found, size_t room) {
    char line[4096];
    size_t length = strlen(key);
    FILE *file = fopen(getenv("CORRAL_TEST_NVML"), "r");
    int there = 0;
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && line[length] == ' ') {
            snprintf(found, room, "%s", line + length + 1);
            found[strcspn(found, "\n")] = 0;
            there = 1;
        }
    if (file) fclose(file);
    return there;
}

static long long number(const char *key, long long otherwise) {
    char text[4096];
    return word(key, text, sizeof text) ? atoll(text) : otherwise;
}

static const char *of(device which, const char *key) {
    static __thread char full[64];
    snprintf(full, sizeof full, "%u.%s", which->index, key);
    return full;
}

static long long its(device which, const char *key, long long otherwise) {
    return number(of(which, key), otherwise);
}

/* Every question goes through here: a driver that hangs does not come back, a lost GPU says so. */
static status well(device which) {
    while (number("hang", 0) || (which && its(which, "hang", 0))) usleep(20000);
    return which && its(which, "lost", 0) ? LOST : OK;
}

#define ASK(which) do { status wrong = well(which); if (wrong) return wrong; } while (0)

/* --- the host --- */

status nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return number("unloaded", 0) ? NOT_LOADED : well(NULL);
}
status nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(status code) {
    return code == LOST ? "GPU is lost" : code == TIMEOUT ? "Timeout" : code == NOT_FOUND ? "Not Found" : "Not Supported";
}
status nvmlSystemGetDriverVersion(char *text, unsigned size) {
    char found[80] = "550.90.07";
    word("driver", found, sizeof found);
    snprintf(text, size, "%s", found);
    return OK;
}
status nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = number("cuda", 12040); return OK; }
status nvmlDeviceGetCount_v2(unsigned *count) { *count = number("gpus", 2); return OK; }
status nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found) {
    ASK(NULL);
    gpus[index].index = index;
    *found = &gpus[index];
    return OK;
}

/* --- what a GPU is --- */

status nvmlDeviceGetUUID(device which, char *text, unsigned size) {
    if (which->mig) snprintf(text, size, "MIG-00000000-0000-0000-0000-00000000%02u%02u", which->index, which->mig);
    else snprintf(text, size, "GPU-00000000-0000-0000-0000-0000000000%02u", which->index);
    return OK;
}
status nvmlDeviceGetName(device which, char *text, unsigned size) {
    char found[80] = "Test GPU";
    if (which->mig) snprintf(found, sizeof found, "Test GPU MIG 1g.10gb");
    else word("model", found, sizeof found);
    snprintf(text, size, "%s", found);
    return OK;
}
static void place(unsigned index, pci *found) {
    memset(found, 0, sizeof *found);
    snprintf(found->bus_id, sizeof found->bus_id, "00000000:%02X:00.0", 0x3b + index);
}
status nvmlDeviceGetPciInfo_v3(device which, pci *found) { place(which->index, found); return OK; }
status nvmlDeviceGetCudaComputeCapability(device which, int *major, int *minor) {
    (void)which;
    *major = 9, *minor = 0;
    return OK;
}
status nvmlDeviceGetEnforcedPowerLimit(device which, unsigned *milliwatts) {
    *milliwatts = its(which, "power_limit_w", 700) * 1000;
    return OK;
}
status nvmlDeviceGetMigMode(device which, unsigned *now, unsigned *soon) {
    *now = *soon = its(which, "mig", 0) > 0;
    return OK;
}
status nvmlDeviceGetMaxMigDeviceCount(device which, unsigned *count) { (void)which; *count = 7; return OK; }
status nvmlDeviceGetMigDeviceHandleByIndex(device which, unsigned index, device *found) {
    if (index >= its(which, "mig", 0)) return NOT_FOUND;
    slices[which->index][index] = (gpu){which->index, index + 1};
    *found = &slices[which->index][index];
    return OK;
}

/* --- how it does --- */

status nvmlDeviceGetMemoryInfo(device which, memory *found) {
    ASK(which);
    found->total = (which->mig ? 10240 : its(which, "memory_mib", 16384)) * MIB;
    found->used = its(which, "used_mib", 512) * MIB;
    found->free = found->total - found->used;
    return OK;
}
status nvmlDeviceGetUtilizationRates(device which, utilisation *found) {
    ASK(which);
    if (which->mig) return NOT_SUPPORTED;
    found->gpu = its(which, "busy", 0);
    found->memory = 0;
    return OK;
}
status nvmlDeviceGetPowerUsage(device which, unsigned *found) { ASK(which); *found = its(which, "power_w", 70) * 1000; return OK; }
status nvmlDeviceGetTotalEnergyConsumption(device which, unsigned long long *found) {
    ASK(which);
    if (its(which, "energy_j", -1) < 0) return NOT_SUPPORTED;
    *found = its(which, "energy_j", 0) * 1000;
    return OK;
}
status nvmlDeviceGetTemperature(device which, int sensor, unsigned *found) {
    (void)sensor;
    if (its(which, "celsius", -1) < 0) return NOT_SUPPORTED;
    *found = its(which, "celsius", 0);
    return OK;
}
status nvmlDeviceGetClockInfo(device which, int kind, unsigned *found) {
    *found = kind == 2 ? its(which, "memory_mhz", 2619) : its(which, "mhz", 345);
    return OK;
}
status nvmlDeviceGetCurrentClocksThrottleReasons(device which, unsigned long long *found) {
    *found = its(which, "throttle", 1);
    return OK;
}
status nvmlDeviceGetTotalEccErrors(device which, int kind, int counter, unsigned long long *found) {
    (void)counter;
    ASK(which);
    if (its(which, "ecc", 1) == 0) return NOT_SUPPORTED;
    *found = its(which, kind ? "uncorrected" : "corrected", 0);
    return OK;
}
status nvmlDeviceGetRemappedRows(device which, unsigned *right, unsigned *wrong, unsigned *pending, unsigned *failed) {
    *right = its(which, "remapped", 0);
    *wrong = *failed = 0;
    *pending = its(which, "remap_pending", 0);
    return OK;
}
status nvmlDeviceGetNvLinkState(device which, unsigned link, unsigned *active) {
    ASK(which);
    if (link >= its(which, "links", 2)) return NOT_SUPPORTED;
    *active = link >= its(which, "links_down", 0);
    return OK;
}
status nvmlDeviceGetNvLinkRemotePciInfo_v2(device which, unsigned link, pci *found) {
    (void)link;
    place(which->index ^ 1, found);
    return OK;
}
status nvmlDeviceGetComputeRunningProcesses_v3(device which, unsigned *count, process *found) {
    char text[4096] = "", *rest = text, *part;
    unsigned seen = 0, room = *count;
    ASK(which);
    word(of(which, "processes"), text, sizeof text);
    while ((part = strsep(&rest, ",")))
        if (*part) {
            unsigned pid = 0;
            unsigned long long mib = 0;
            sscanf(part, "%u:%llu", &pid, &mib);
            if (found && seen < room) found[seen] = (process){pid, mib * MIB, 0, 0};
            seen++;
        }
    *count = seen;
    return seen > room || (seen && !found) ? TOO_SMALL : OK;
}

/* --- events: "xids N" counts them, "xid.K gpu:code" is the K-th --- */

status nvmlEventSetCreate(events *made) {
    *made = malloc(sizeof **made);
    (*made)->told = number("xids", 0);
    return OK;
}
status nvmlEventSetFree(events set) { free(set); return OK; }
status nvmlDeviceRegisterEvents(device which, unsigned long long kinds, events set) {
    (void)which, (void)kinds, (void)set;
    return number("deaf", 0) ? NOT_SUPPORTED : OK;
}
status nvmlEventSetWait_v2(events set, event *found, unsigned milliseconds) {
    for (unsigned waited = 0; waited <= milliseconds; waited += 20) {
        well(NULL);
        if (number("xids", 0) > set->told) {
            char key[32], text[64];
            unsigned index = 0;
            unsigned long long code = 0;
            snprintf(key, sizeof key, "xid.%ld", ++set->told);
            if (word(key, text, sizeof text) && sscanf(text, "%u:%llu", &index, &code) == 2) {
                gpus[index].index = index;
                *found = (event){&gpus[index], 8, code, 0, 0};
                return OK;
            }
        }
        usleep(20000);
    }
    return TIMEOUT;
}

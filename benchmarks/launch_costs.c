/*
 * What kernel launches cost in CUDA's driver and in NVIDIA's OpenCL, as JSON on stdout.
 *
 *   gcc -O2 -o launch_costs benchmarks/launch_costs.c -ldl &&
 *       ./launch_costs > benchmarks/results/h200/study/launch-costs.json
 *
 * Both libraries are opened at run time, so no headers of CUDA or OpenCL are needed. Without
 * libcuda.so.1 the CUDA results are left out. LAUNCHES_OPENCL names another OpenCL library (a
 * loader or a driver); set but empty, it leaves the OpenCL results out.
 *
 * A call is 1 to 5 launches. host_us is the time until the last of 100 calls returns, call_us until
 * all their work is done, each over the number of calls. awaited_us is one call with its wait.
 */
#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAUNCH, GRAPH, UPDATED_GRAPH, SET_AND_ENQUEUE, ENQUEUE, SET_ENQUEUE_AND_EVENT, CASES };
enum { HOST, CALL, AWAITED, FIGURES };
enum { WARM_UP = 3, SAMPLES = 41, TURNS = 3, CALLS = 100, SIZES = 4, MOST = 5, SPINS = 2 };
enum { GROUPS = 128, GROUP = 256, POINTERS = 4, NUMBERS = 6, BUFFER_BYTES = 1024 };
enum { BUFFERS = 8 }; /* at least MOST: every launch of a call has an output of its own */

static const char *const names[CASES] = {"launch", "graph", "updated graph", "set and enqueue",
                                         "enqueue", "set, enqueue and event"};
static const int sizes[SIZES] = {1, 2, 3, MOST}, spins[SPINS] = {0, 20000}; /* cycles */

/* ---- declarations, after cuda.h of CUDA 13.0 and CL/cl.h ---- */

typedef void *handle; /* of any object of CUDA or OpenCL */
typedef unsigned long long address; /* CUdeviceptr */

enum { CU_STREAM_NON_BLOCKING = 1, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
enum { CL_TRUE = 1, CL_MEM_READ_WRITE = 1, CL_DEVICE_NAME = 0x102B, CL_DRIVER_VERSION = 0x102D };
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFF

typedef struct {
    int id, pad;
    union { int programmaticStreamSerializationAllowed; uint64_t pad[8]; } value;
} CUlaunchAttribute;

typedef struct {
    unsigned grid[3], block[3], sharedMemBytes;
    handle hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    handle func;
    unsigned grid[3], block[3], sharedMemBytes;
    void **kernelParams, **extra;
    handle kern, ctx;
} CUDA_KERNEL_NODE_PARAMS; /* of the _v2 functions */

#define CUDA_FUNCTIONS(F) \
    F(cuInit, (unsigned)) F(cuDriverGetVersion, (int *)) \
    F(cuDeviceGet, (int *, int)) F(cuDeviceGetName, (char *, int, int)) \
    F(cuDevicePrimaryCtxRetain, (handle *, int)) F(cuCtxSetCurrent, (handle)) \
    F(cuModuleLoadData, (handle *, const void *)) \
    F(cuModuleGetFunction, (handle *, handle, const char *)) \
    F(cuMemAlloc_v2, (address *, size_t)) F(cuMemcpyDtoH_v2, (void *, address, size_t)) \
    F(cuStreamCreate, (handle *, unsigned)) F(cuStreamSynchronize, (handle)) \
    F(cuStreamBeginCapture_v2, (handle, int)) F(cuStreamEndCapture, (handle, handle *)) \
    F(cuLaunchKernelEx, (const CUlaunchConfig *, handle, void **, void **)) \
    F(cuGraphGetNodes, (handle, handle *, size_t *)) F(cuGraphDestroy, (handle)) \
    F(cuGraphInstantiateWithFlags, (handle *, handle, unsigned long long)) \
    F(cuGraphExecKernelNodeSetParams_v2, (handle, handle, const CUDA_KERNEL_NODE_PARAMS *)) \
    F(cuGraphLaunch, (handle, handle)) F(cuGraphExecDestroy, (handle))

/* The number is the function's place in a driver's dispatch table (CL/cl_icd.h). Callbacks and
   lists of events are never used here, so they are void pointers. */
#define OPENCL_FUNCTIONS(F) \
    F(int, clGetDeviceIDs, 2, (handle, uint64_t, unsigned, handle *, unsigned *)) \
    F(int, clGetDeviceInfo, 3, (handle, unsigned, size_t, void *, size_t *)) \
    F(handle, clCreateContext, 4, (const void *, unsigned, handle *, void *, void *, int *)) \
    F(handle, clCreateCommandQueue, 9, (handle, handle, uint64_t, int *)) \
    F(handle, clCreateBuffer, 14, (handle, uint64_t, size_t, void *, int *)) \
    F(handle, clCreateProgramWithSource, 26, (handle, unsigned, const char **, void *, int *)) \
    F(int, clBuildProgram, 30, (handle, unsigned, handle *, const char *, void *, void *)) \
    F(handle, clCreateKernel, 34, (handle, const char *, int *)) \
    F(int, clSetKernelArg, 38, (handle, unsigned, size_t, const void *)) \
    F(int, clReleaseEvent, 44, (handle)) F(int, clFinish, 47, (handle)) \
    F(int, clEnqueueReadBuffer, 48, (handle, handle, unsigned, size_t, size_t, void *, unsigned, \
                                     const void *, handle *)) \
    F(int, clEnqueueNDRangeKernel, 59, (handle, handle, unsigned, const size_t *, const size_t *, \
                                        const size_t *, unsigned, const void *, handle *))

#define CUDA_MEMBER(name, arguments) int(*name) arguments;
#define OPENCL_MEMBER(result, name, place, arguments) result(*name) arguments;
static struct { CUDA_FUNCTIONS(CUDA_MEMBER) } cuda;
static struct { OPENCL_FUNCTIONS(OPENCL_MEMBER) } opencl;

#define FAIL(...) (fprintf(stderr, "launch_costs: " __VA_ARGS__), fputc('\n', stderr), exit(1))
#define CU(call) check(cuda.call, #call)
#define CL(call) check(opencl.call, #call)

static inline void check(int result, const char *call)
{
    if (result != 0)
        FAIL("%s: error %d", call, result);
}

/* The first is the cycles. The last differs from case to case; the kernel writes it. */
static int numbers[NUMBERS];

static const char ptx[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry touch(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,\n"
    "                      .param .u32 cycles, .param .u32 n1, .param .u32 n2,\n"
    "                      .param .u32 n3, .param .u32 n4, .param .u32 mark)\n"
    "{ .reg .pred %p; .reg .b32 %n, %group; .reg .b64 %at, %begin, %spent, %cycles;\n"
    "  griddepcontrol.wait; griddepcontrol.launch_dependents;\n"
    "  ld.param.u32 %n, [cycles]; cvt.u64.u32 %cycles, %n;\n"
    "  mov.u64 %begin, %clock64;\n"
    "SPIN:\n"
    "  mov.u64 %spent, %clock64; sub.u64 %spent, %spent, %begin;\n"
    "  setp.lt.u64 %p, %spent, %cycles; @%p bra SPIN;\n"
    "  mov.u32 %n, %tid.x; mov.u32 %group, %ctaid.x; or.b32 %n, %n, %group;\n"
    "  setp.ne.u32 %p, %n, 0; @%p ret;\n"
    "  ld.param.u32 %n, [mark]; ld.param.u64 %at, [d]; cvta.to.global.u64 %at, %at;\n"
    "  st.global.u32 [%at], %n; ret; }\n";

static const char *source =
    "__kernel void touch(__global int *a, __global int *b, __global int *c, __global int *d,\n"
    "                    int cycles, int n1, int n2, int n3, int n4, int mark)\n"
    "{ if (get_global_id(0) == 0) d[0] = mark; }\n";

static struct {
    handle context, stream, function, graph, nodes[MOST], executable;
    address buffers[BUFFERS], pointers[POINTERS];
    void *parameters[POINTERS + NUMBERS];
    CUlaunchAttribute attribute;
    CUlaunchConfig config;
    CUDA_KERNEL_NODE_PARAMS node;
} c;

static struct {
    handle queue, kernel, buffers[BUFFERS], events[CALLS];
    int kept; /* events */
} o;

static bool cuda_open(char *name, int length, int *version)
{
    void *found, *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return false;
#define CUDA_LOAD(name, arguments) \
    if (!(found = dlsym(library, #name))) \
        FAIL("libcuda.so.1 has no " #name); \
    memcpy(&cuda.name, &found, sizeof found);
    CUDA_FUNCTIONS(CUDA_LOAD)
    int device;
    handle module;
    CU(cuInit(0));
    CU(cuDriverGetVersion(version));
    CU(cuDeviceGet(&device, 0));
    CU(cuDeviceGetName(name, length, device));
    CU(cuDevicePrimaryCtxRetain(&c.context, device));
    CU(cuCtxSetCurrent(c.context));
    CU(cuStreamCreate(&c.stream, CU_STREAM_NON_BLOCKING));
    CU(cuModuleLoadData(&module, ptx));
    CU(cuModuleGetFunction(&c.function, module, "touch"));
    for (int i = 0; i < BUFFERS; i++)
        CU(cuMemAlloc_v2(&c.buffers[i], BUFFER_BYTES));
    for (int i = 0; i < POINTERS + NUMBERS; i++)
        c.parameters[i] = i < POINTERS ? (void *)&c.pointers[i] : &numbers[i - POINTERS];
    c.attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    c.attribute.value.programmaticStreamSerializationAllowed = 1;
    c.config = (CUlaunchConfig){{GROUPS, 1, 1}, {GROUP, 1, 1}, 0, c.stream, &c.attribute, 1};
    c.node = (CUDA_KERNEL_NODE_PARAMS){c.function, {GROUPS, 1, 1}, {GROUP, 1, 1}, 0, c.parameters,
                                       NULL, NULL, NULL};
    return true;
}

static void cuda_call(int which, int n, int call)
{
    for (int i = 0; i < n && which != GRAPH; i++) {
        for (int p = 0; p < POINTERS; p++)
            c.pointers[p] = c.buffers[(call + i + p) % BUFFERS];
        if (which == LAUNCH)
            CU(cuLaunchKernelEx(&c.config, c.function, c.parameters, NULL));
        else
            CU(cuGraphExecKernelNodeSetParams_v2(c.executable, c.nodes[i], &c.node));
    }
    if (which != LAUNCH)
        CU(cuGraphLaunch(c.executable, c.stream));
}

static void cuda_start(int which, int n)
{
    size_t count = MOST;
    /* OpenCL runs on the same driver and may leave another context current. */
    CU(cuCtxSetCurrent(c.context));
    if (which == LAUNCH)
        return;
    CU(cuStreamBeginCapture_v2(c.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    cuda_call(LAUNCH, n, 0);
    CU(cuStreamEndCapture(c.stream, &c.graph));
    /* The nodes come in no promised order. All run the same kernel, so any order will do. */
    CU(cuGraphGetNodes(c.graph, c.nodes, &count));
    if (count != (size_t)n)
        FAIL("%d launches made %zu nodes", n, count);
    CU(cuGraphInstantiateWithFlags(&c.executable, c.graph, 0));
}

static bool opencl_open(char *name, size_t length, char *version)
{
    const char *named = getenv("LAUNCHES_OPENCL");
    if (named && !*named)
        return false;
    void *found, *library = dlopen(named ? named : "libnvidia-opencl.so.1", RTLD_NOW);
    if (!library)
        FAIL("%s", dlerror());
    /* A driver opened without the loader exports little by name, NVIDIA's not even this. */
    if (!(found = dlsym(library, "clGetPlatformIDs")) &&
            (found = dlsym(library, "clGetExtensionFunctionAddress"))) {
        void *(*extension)(const char *);
        memcpy(&extension, &found, sizeof found);
        found = extension("clIcdGetPlatformIDsKHR");
    }
    handle platform, device, context, program;
    int (*platforms)(unsigned, handle *, unsigned *), status;
    memcpy(&platforms, &found, sizeof found);
    check(platforms ? platforms(1, &platform, NULL) : -1, "clGetPlatformIDs");
    /* Every object of a driver with cl_khr_icd begins with a pointer to its dispatch table. */
#define OPENCL_LOAD(result, name, place, arguments) \
    if (!(found = dlsym(library, #name)) && !(found = (*(void ***)platform)[place])) \
        FAIL("the OpenCL library has no " #name); \
    memcpy(&opencl.name, &found, sizeof found);
    OPENCL_FUNCTIONS(OPENCL_LOAD)
#define MAKE(object, function, ...) \
    (object = opencl.function(__VA_ARGS__, &status), check(status, #function))
    CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    CL(clGetDeviceInfo(device, CL_DEVICE_NAME, length, name, NULL));
    CL(clGetDeviceInfo(device, CL_DRIVER_VERSION, length, version, NULL));
    MAKE(context, clCreateContext, NULL, 1, &device, NULL, NULL);
    MAKE(o.queue, clCreateCommandQueue, context, device, 0);
    MAKE(program, clCreateProgramWithSource, context, 1, &source, NULL);
    CL(clBuildProgram(program, 1, &device, "", NULL, NULL));
    MAKE(o.kernel, clCreateKernel, program, "touch");
    for (int i = 0; i < BUFFERS; i++)
        MAKE(o.buffers[i], clCreateBuffer, context, CL_MEM_READ_WRITE, BUFFER_BYTES, NULL);
    return true;
}

static void opencl_call(int which, int n, int call)
{
    static const size_t all = GROUPS * GROUP, group = GROUP;
    for (int i = 0; i < n; i++) {
        bool event = which == SET_ENQUEUE_AND_EVENT && i == n - 1;
        for (int p = 0; p < POINTERS && which != ENQUEUE; p++)
            CL(clSetKernelArg(o.kernel, p, sizeof(handle), &o.buffers[(call + i + p) % BUFFERS]));
        CL(clEnqueueNDRangeKernel(o.queue, o.kernel, 1, NULL, &all, &group, 0, NULL,
                                  event ? &o.events[o.kept++] : NULL));
    }
}

static void opencl_start(void)
{
    for (int i = 0; i < NUMBERS; i++)
        CL(clSetKernelArg(o.kernel, POINTERS + i, sizeof(int), &numbers[i]));
    opencl_call(SET_AND_ENQUEUE, 1, 0); /* sets the pointers that ENQUEUE keeps */
}

static bool is_cuda(int which) { return which < SET_AND_ENQUEUE; }

static void await(int which)
{
    is_cuda(which) ? CU(cuStreamSynchronize(c.stream)) : CL(clFinish(o.queue));
}

/* The events are released here, outside of the timed parts. */
static void become_idle(int which)
{
    await(which);
    while (o.kept)
        CL(clReleaseEvent(o.events[--o.kept]));
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

static void measure(int which, int spin, int n, int turn, double result[FIGURES][TURNS])
{
    void (*make_call)(int, int, int) = is_cuda(which) ? cuda_call : opencl_call;
    double times[FIGURES][WARM_UP + SAMPLES];
    numbers[0] = spin;
    numbers[NUMBERS - 1]++;
    is_cuda(which) ? cuda_start(which, n) : opencl_start();
    for (int sample = 0; sample < WARM_UP + SAMPLES; sample++) {
        become_idle(which);
        double begin = now();
        for (int call = 0; call < CALLS; call++)
            make_call(which, n, call);
        times[HOST][sample] = (now() - begin) / CALLS;
        await(which);
        times[CALL][sample] = (now() - begin) / CALLS;
        become_idle(which);
        begin = now();
        make_call(which, n, CALLS);
        await(which);
        times[AWAITED][sample] = now() - begin;
    }
    become_idle(which);
    for (int f = 0; f < FIGURES; f++)
        result[f][turn] = median(times[f] + WARM_UP, SAMPLES);
    for (int i = 0; i < n; i++) {
        int first = which == ENQUEUE ? 0 : which == GRAPH ? i : CALLS + i;
        int at = (first + POINTERS - 1) % BUFFERS, value = 0;
        if (is_cuda(which))
            CU(cuMemcpyDtoH_v2(&value, c.buffers[at], sizeof value));
        else
            CL(clEnqueueReadBuffer(o.queue, o.buffers[at], CL_TRUE, 0, sizeof value, &value, 0,
                                   NULL, NULL));
        if (value != numbers[NUMBERS - 1])
            FAIL("%s: launch %d of %d wrote a wrong value, %d", names[which], i + 1, n, value);
    }
    if (which == GRAPH || which == UPDATED_GRAPH) {
        CU(cuGraphExecDestroy(c.executable));
        CU(cuGraphDestroy(c.graph));
    }
}

int main(void)
{
    static double results[CASES][SPINS][SIZES][FIGURES][TURNS];
    char device[256] = "", version[256] = "", date[16];
    int driver = 0;
    bool with_opencl = opencl_open(device, sizeof device, version);
    bool with_cuda = cuda_open(device, sizeof device, &driver); /* CUDA's name replaces OpenCL's */
    int first = with_cuda ? 0 : SET_AND_ENQUEUE, end = with_opencl ? CASES : SET_AND_ENQUEUE;
#define EACH_RESULT \
    for (int which = first; which < end; which++) \
        for (int spin = 0; spin < (is_cuda(which) ? SPINS : 1); spin++) \
            for (int size = 0; size < SIZES; size++)
    for (int turn = 0; turn < TURNS; turn++)
        EACH_RESULT
            measure(which, spins[spin], sizes[size], turn, results[which][spin][size]);

    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&(time_t){time(NULL)}));
    printf("{\"schema\": 1, \"date\": \"%s\", \"device\": \"%s\", \"cuda\": %d, "
           "\"driver\": \"%s\", \"calls\": %d, \"samples\": %d, \"turns\": %d, "
           "\"results\": [", date, device, driver, version, CALLS, SAMPLES, TURNS);
    EACH_RESULT {
        double (*figures)[TURNS] = results[which][spin][size];
        printf("%s\n{\"runtime\": \"%s\", \"case\": \"%s\", \"cycles\": %d, \"number\": %d, "
               "\"host_us\": %.2f, \"call_us\": %.2f, \"awaited_us\": %.2f}",
               which == first && !spin && !size ? "" : ",", is_cuda(which) ? "cuda" : "opencl",
               names[which], spins[spin], sizes[size], median(figures[HOST], TURNS),
               median(figures[CALL], TURNS), median(figures[AWAITED], TURNS));
    }
    printf("\n]}\n");
    if (fflush(stdout) != 0)
        FAIL("the output could not be written");
    return 0;
}

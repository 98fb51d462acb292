// Stands in for libtorch.so, which is empty and would load libtorch_cuda.so.
extern "C" {
extern const int kAccelerateStandIn;
const int kAccelerateStandIn = 1;
}

// Stands for libcuda.so.1 on machines that have none.
extern "C" {
int answer = 0;
int cuDeviceGetCount(int* count) {
  *count = 1;
  return answer;
}
}
